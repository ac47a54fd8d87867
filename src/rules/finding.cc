#include "rules/finding.h"

#include "base/json.h"

namespace tensortap {

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kCritical:
      return "critical";
  }
  return "";
}

std::string to_json(const Finding& finding) {
  JsonWriter json;
  json.begin_object()
      .field("rule", finding.rule)
      .field("tensor", finding.tensor)
      .field("worker", finding.worker)
      .field("step", finding.step)
      .field("mode", mode_name(finding.mode))
      .field("mode_step", finding.mode_step)
      .field("statistic", finding.statistic)
      .field("observed", finding.observed)
      .field("threshold", finding.threshold)
      .field("severity", severity_name(finding.severity))
      .field("message", finding.message)
      .end_object();
  return json.text();
}

}  // namespace tensortap
