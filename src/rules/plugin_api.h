// What a shared object with rules of its own exports. Write the rule as in rules/builtin, and end
// the file with
//
//   TENSORTAP_RULE_PLUGIN(&my_rule(), &my_other_rule())
//
// examples/plugin has a complete one, docs/rules.md says how to build it. The object is built from
// the same sources, by the same kind of compiler, as the program that loads it; both sides compare
// what they take for granted. Included by plugins and by plugin.cc.
#pragma once

#include <array>
#include <cstddef>

#include "rules/rule.h"

namespace tensortap {

// What must be equal on both sides.
struct RuleInterface {
  int version = 2;  // +1 with every change of Rule, RuleDescriptor or what a check sees
  int compiler_abi = __GXX_ABI_VERSION;
  std::size_t descriptor_size = sizeof(RuleDescriptor);
  std::size_t finding_size = sizeof(Finding);
  std::size_t record_size = sizeof(StepRecord);
  std::size_t row_size = sizeof(StatisticsRow);
  bool operator==(const RuleInterface&) const = default;
};

struct RulePluginTable {
  RuleInterface interface;
  const RuleDescriptor* const* rules = nullptr;
  std::size_t rule_count = 0;
};

// The one symbol that is looked for.
inline constexpr const char* kRulePluginSymbol = "tensortap_rule_plugin";

}  // namespace tensortap

#define TENSORTAP_RULE_PLUGIN(...)                                                            \
  extern "C" __attribute__((visibility("default"))) const tensortap::RulePluginTable*         \
  tensortap_rule_plugin() {                                                                   \
    static const auto rules = std::to_array<const tensortap::RuleDescriptor*>({__VA_ARGS__}); \
    static const tensortap::RulePluginTable table{{}, rules.data(), rules.size()};            \
    return &table;                                                                            \
  }
