#include "rules/tensor_role.h"

#include <algorithm>
#include <string_view>

namespace tensortap {
namespace {

// "…_output_0", "…_input_12".
bool ends_with_index_of(std::string_view name, std::string_view word) {
  const std::size_t last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < name.size() &&
         name.substr(0, last + 1).ends_with(word);
}

}  // namespace

TensorRole tensor_role(const TensorInfo& info) {
  const auto is_in = [&](std::string_view collection) {
    return std::find(info.collections.begin(), info.collections.end(), collection) !=
           info.collections.end();
  };
  const std::string_view name = info.name;
  if (is_in("losses")) return TensorRole::kLoss;
  if (name.starts_with("gradient/") || name.starts_with("gradient_before_clipping/") ||
      is_in("gradients")) {
    return TensorRole::kGradient;
  }
  if (name.starts_with("optimizer/")) return TensorRole::kOptimizerState;
  if (is_in("model_inputs")) return TensorRole::kBatch;
  if (ends_with_index_of(name, "_output_") || ends_with_index_of(name, "_input_")) {
    return TensorRole::kForward;
  }
  if (is_in("weights") || is_in("biases")) return TensorRole::kParameter;
  return TensorRole::kOther;
}

}  // namespace tensortap
