// Labels and predictions of a step as class numbers: what Confusion and ClassImbalance have in
// common. Used by rules/builtin. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/tensor_selector.h"
#include "rules/values.h"

namespace tensortap {

// Class numbers out of a tensor: whole numbers as they are; of a tensor with several columns, the
// column of the largest (last axis); of probabilities between 0 and 1, whether they exceed 0.5.
// Throws Error(kInvalidArgument), beginning with `what`, when it is none of these.
std::vector<std::int64_t> classes_of(const TensorValues& values, std::string_view what);

// Whether the last axis holds one score a class.
bool has_scores(const TensorValues& values);

// One of the two operands: where it is found at a step.
class ClassOperand {
 public:
  // An exact name, and a collection or regexes where the name is not found.
  ClassOperand(std::string name, std::vector<std::string> collections,
               std::vector<std::string> regexes);

  // Its row; null when the step has none. Throws Error(kInvalidArgument) when several could be
  // meant.
  const StatisticsRow* find(const WorkerStep& worker);
  std::uint64_t matched_tensors() const { return is_found_ ? 1 : 0; }
  std::string description() const;

 private:
  const std::string name_;
  TensorSelector selector_;
  bool is_found_ = false;
};

// Whether a step is looked at: of the mode that the parameter `mode` says; unset, TRAIN or GLOBAL.
class ModeFilter {
 public:
  ModeFilter(std::string_view rule, const std::string& mode);
  bool takes(Mode mode) const;

 private:
  std::optional<Mode> mode_;
};

}  // namespace tensortap
