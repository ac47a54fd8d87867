#include "rules/registry.h"

#include <array>
#include <cctype>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

constexpr std::array<ParameterDescriptor, 2> kCommon = {{
    {"start_step", ParameterType::kInt, "0",
     "First global step that is judged; earlier ones are only remembered.", 0},
    {"end_step", ParameterType::kInt, "",
     "Global step from which on nothing is judged any more (exclusive); unset = never.", 0},
}};

// VanishingGradient, vanishing_gradient and vanishing-gradient are one name.
std::string folded(std::string_view name) {
  std::string text;
  for (const char c : trim(name)) {
    if (c != '_' && c != '-' && c != ' ') {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

}  // namespace

std::span<const ParameterDescriptor> common_rule_parameters() { return kCommon; }

const RuleDescriptor& find_rule(std::string_view name) { return find_rule(name, builtin_rules()); }

const RuleDescriptor& find_rule(std::string_view name,
                                std::span<const RuleDescriptor* const> rules) {
  const std::string wanted = folded(name);
  std::vector<std::string> names;
  for (const RuleDescriptor* rule : rules) {
    if (folded(rule->name) == wanted) return *rule;
    names.emplace_back(rule->name);
  }
  throw Error(ErrorCode::kNotFound, "no rule '" + std::string(name) + "'" +
                                        did_you_mean(name, names) +
                                        "; there are: " + join(names, ", "));
}

}  // namespace tensortap
