// What a rule says when it fires. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace/mode.h"

namespace tensortap {

enum class Severity : std::uint8_t { kInfo, kWarning, kCritical };
std::string_view severity_name(Severity severity);  // "info", "warning", "critical"
std::optional<Severity> severity_from_name(std::string_view name);

struct Finding {
  std::string rule;    // filled in by the engine
  std::string tensor;  // "" when the finding is not about one tensor
  std::string worker;
  std::int64_t step = 0;  // global step
  Mode mode = Mode::kGlobal;
  std::int64_t mode_step = 0;
  std::string statistic;  // of what `observed` is: "abs_mean"
  double observed = 0.0;
  double threshold = 0.0;
  Severity severity = Severity::kWarning;
  std::string message;  // a sentence a person understands

  bool operator==(const Finding&) const = default;
};

// One JSON object on one line: the format of rules/<name>.jsonl, documented in
// docs/findings.md.
std::string to_json(const Finding& finding);
// Reads it back; nothing for what is no such object. Members that are missing take their defaults.
std::optional<Finding> finding_from_json(std::string_view line_untrusted);

}  // namespace tensortap
