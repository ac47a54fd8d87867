// The built-in actions. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actions/action.h"

namespace tensortap {

const std::vector<const ActionDescriptor*>& builtin_actions();

// What every action takes: cooldown (steps), and for slow ones retries.
std::span<const ParameterDescriptor> common_action_parameters();

// By name in any spelling. Throws Error(kNotFound) with the names there are.
const ActionDescriptor& find_action(std::string_view name);

struct CreatedAction {
  const ActionDescriptor* descriptor = nullptr;
  std::string shown;  // as it may be stored: without secrets
  std::int64_t cooldown = 0;
  std::int64_t retries = 0;
  std::unique_ptr<Action> action;
};

// Any text of actions/spec.h. Throws Error: an unknown name or parameter, a value that does not
// fit, a secret that is not where it should be; without repeating values that may be secret.
CreatedAction create_action(std::string_view spec);

}  // namespace tensortap
