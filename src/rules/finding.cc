#include "rules/finding.h"

#include <limits>

#include <nlohmann/json.hpp>

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

std::optional<Severity> severity_from_name(std::string_view name) {
  for (const Severity one : {Severity::kInfo, Severity::kWarning, Severity::kCritical}) {
    if (severity_name(one) == name) return one;
  }
  return std::nullopt;
}

namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t integer_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// What JSON has no number for was written as a text.
double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0.0;
  if (found->is_number()) return found->get<double>();
  const std::string text = text_of(object, key);
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::optional<Finding> finding_from_json(std::string_view line_untrusted) {
  const Json json = Json::parse(line_untrusted, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || text_of(json, "rule").empty()) return std::nullopt;
  Finding finding;
  finding.rule = text_of(json, "rule");
  finding.tensor = text_of(json, "tensor");
  finding.worker = text_of(json, "worker");
  finding.step = integer_of(json, "step");
  finding.mode = mode_from_name(text_of(json, "mode")).value_or(Mode::kGlobal);
  finding.mode_step = integer_of(json, "mode_step");
  finding.statistic = text_of(json, "statistic");
  finding.observed = number_of(json, "observed");
  finding.threshold = number_of(json, "threshold");
  finding.severity = severity_from_name(text_of(json, "severity")).value_or(finding.severity);
  finding.message = text_of(json, "message");
  return finding;
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
