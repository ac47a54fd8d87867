// Illnesses that show by several rules at once, as data. Used by diagnosis.cc. Constant,
// thread-safe.
#pragma once

#include <span>
#include <string_view>

namespace tensortap {

struct Syndrome {
  std::string_view title;
  std::string_view explanation;
  std::string_view next_step;
  // It is this illness when two of these have fired, or one of them and one of those that follow.
  std::span<const std::string_view> signs;
  // What the illness brings about; alone it says nothing.
  std::span<const std::string_view> consequences;
};

// The more special ones first: each rule's findings go to the first that fits.
std::span<const Syndrome> syndromes();

}  // namespace tensortap
