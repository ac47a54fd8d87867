#include "trace/mode.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tensortap {
namespace {

constexpr std::array<std::string_view, kModeCount> kNames = {"TRAIN", "EVAL", "PREDICT", "GLOBAL"};

}  // namespace

std::string_view mode_name(Mode mode) { return kNames[static_cast<std::size_t>(mode) - 1]; }

std::optional<Mode> mode_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const bool same =
        std::equal(name.begin(), name.end(), kNames[i].begin(), kNames[i].end(),
                   [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; });
    if (same) return static_cast<Mode>(i + 1);
  }
  return std::nullopt;
}

std::optional<Mode> mode_from_code(std::uint8_t code_untrusted) {
  if (code_untrusted < 1 || code_untrusted > kModeCount) return std::nullopt;
  return static_cast<Mode>(code_untrusted);
}

}  // namespace tensortap
