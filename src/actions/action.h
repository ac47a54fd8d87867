// What happens when a rule fires. One file each in actions/builtin/; CMake generates the list. An
// action that fails is logged and never harms the training.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rules/finding.h"
#include "rules/parameters.h"

namespace tensortap {

// What an action may do to the process it runs in. Filled in by session/ (in the training) or by a
// program.
struct ActionContext {
  // Ends the training at this step's border. Empty outside a training.
  std::function<void(const Finding&)> request_stop;
};

class Action {
 public:
  virtual ~Action() = default;
  virtual void run(const Finding& finding, ActionContext& context) = 0;
};

struct ActionDescriptor {
  std::string_view name;  // "stop_training"
  std::string_view summary;
  std::string_view doc;
  std::span<const ParameterDescriptor> parameters;
  std::unique_ptr<Action> (*create)(const Parameters& parameters);
};

}  // namespace tensortap
