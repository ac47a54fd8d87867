// The elements of a recorded tensor as numbers, for rules that cannot do with statistics. Used by
// rules/builtin. Thread-safe: works on its arguments alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rules/rule.h"

namespace tensortap {

struct TensorValues {
  std::vector<std::int64_t> shape;
  std::vector<double> elements;  // C order; complex elements as their magnitudes
};

// The elements in these bytes. Nothing when they are not as many as the shape says, as a damaged
// run may have it.
std::optional<TensorValues> decode_values(const Layout& layout, std::span<const std::byte> bytes);

// The raw value of a row, or of a one-element row what its statistics say. Nothing when no raw
// value was kept.
std::optional<TensorValues> values_of(const WorkerStep& worker, const StatisticsRow& row);

}  // namespace tensortap
