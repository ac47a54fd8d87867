#include "actions/message.h"

#include <fmt/core.h>

#include "base/json.h"
#include "trace/mode.h"

namespace tensortap {

std::string one_line(std::string_view text_untrusted) {
  std::string line(text_untrusted);
  for (char& c : line) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) c = ' ';
  }
  return line;
}

std::string finding_headline(const Finding& finding) {
  return one_line(fmt::format("Tensortap: {} at step {}", finding.rule, finding.step));
}

std::string finding_text(const Finding& finding, std::string_view run) {
  std::string text = one_line(finding.message) + "\n\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{:<10}{}\n", name, one_line(value));
  };
  add("rule", finding.rule);
  add("severity", severity_name(finding.severity));
  add("step", fmt::format("{} ({} {})", finding.step, mode_name(finding.mode), finding.mode_step));
  add("tensor", finding.tensor);
  add("worker", finding.worker);
  if (!finding.statistic.empty()) {
    add("observed", fmt::format("{} = {:.6g}", finding.statistic, finding.observed));
    add("threshold", fmt::format("{:.6g}", finding.threshold));
  }
  add("run", run);
  return text;
}

std::string finding_document(const Finding& finding, std::string_view run) {
  JsonWriter json;
  json.begin_object().field("run", run);
  json.key("finding").raw(to_json(finding)).end_object();
  return json.text();
}

}  // namespace tensortap
