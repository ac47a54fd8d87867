// The built-in rules: one file each in rules/builtin/; CMake generates the list. Thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "rules/rule.h"

namespace tensortap {

const std::vector<const RuleDescriptor*>& builtin_rules();

// What every rule takes besides its own parameters: start_step and end_step, which the engine
// applies.
std::span<const ParameterDescriptor> common_rule_parameters();

// By name in any spelling (VanishingGradient, vanishing_gradient). Throws Error(kNotFound) with the
// names there are.
const RuleDescriptor& find_rule(std::string_view name);
const RuleDescriptor& find_rule(std::string_view name,
                                std::span<const RuleDescriptor* const> rules);

}  // namespace tensortap
