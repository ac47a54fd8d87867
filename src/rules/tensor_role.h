// What a recorded tensor is in a training, from its name and collections as hooks give them. Used
// by rules/builtin. Pure function, thread-safe.
#pragma once

#include <cstdint>

#include "trace/step_record.h"

namespace tensortap {

// In the order in which a step computes them.
enum class TensorRole : std::uint8_t {
  kBatch,    // input of a root module: collection model_inputs
  kForward,  // input or output of a module
  kLoss,     // collection losses
  kGradient,
  kOptimizerState,
  kParameter,
  kOther,
};

TensorRole tensor_role(const TensorInfo& info);

}  // namespace tensortap
