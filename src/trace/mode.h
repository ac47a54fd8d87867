// What a training step was for. Numeric values are smdebug's and are written into traces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tensortap {

enum class Mode : std::uint8_t { kTrain = 1, kEval = 2, kPredict = 3, kGlobal = 4 };

inline constexpr int kModeCount = 4;

std::string_view mode_name(Mode mode);                      // "TRAIN", "EVAL", "PREDICT", "GLOBAL"
std::optional<Mode> mode_from_name(std::string_view name);  // any case
std::optional<Mode> mode_from_code(std::uint8_t code_untrusted);

}  // namespace tensortap
