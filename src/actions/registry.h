// The built-in actions. Thread-safe.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "actions/action.h"

namespace tensortap {

const std::vector<const ActionDescriptor*>& builtin_actions();

// "stop_training" or "stop_training:key=value,…". Throws Error(kNotFound) with the names there are.
std::unique_ptr<Action> create_action(std::string_view spec);

}  // namespace tensortap
