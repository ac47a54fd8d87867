#include "actions/registry.h"

#include <cctype>
#include <string>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

// "StopTraining", "stop_training" and "stop-training" are one name: SageMaker writes the first.
std::string spelling_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return key;
}

}  // namespace

std::unique_ptr<Action> create_action(std::string_view spec) {
  const RuleSpec parsed = parse_rule_spec(spec);
  const std::string key = spelling_key(parsed.name);
  std::vector<std::string> names;
  for (const ActionDescriptor* descriptor : builtin_actions()) {
    if (spelling_key(descriptor->name) == key) {
      return descriptor->create(Parameters(fmt::format("action {}", descriptor->name),
                                           descriptor->parameters, parsed.parameters));
    }
    names.emplace_back(descriptor->name);
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("unknown action '{}'{}; the actions are: {}", parsed.name,
                          did_you_mean(parsed.name, names), join(names, ", ")));
}

}  // namespace tensortap
