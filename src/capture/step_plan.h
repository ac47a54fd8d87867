// What is due at the current step: one byte of flags a tensor, saying what of it to keep.
// Recomputed only when the set of due collections changes. Asking costs one test. Made by
// StepPlanner, read by hooks on the training thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/step_record.h"

namespace tensortap {

class StepPlan {
 public:
  enum Flags : std::uint8_t { kStatistics = 1, kRaw = 2, kHistogram = 4 };

  bool any_due() const { return any_due_; }
  bool is_due(TensorId tensor) const { return tensor < flags_.size() && flags_[tensor] != 0; }
  std::uint8_t flags(TensorId tensor) const { return tensor < flags_.size() ? flags_[tensor] : 0; }

 private:
  friend class StepPlanner;
  // Some collection that is being saved is due, whether or not it has tensors yet.
  bool any_due_ = false;
  std::vector<std::uint8_t> flags_;
};

}  // namespace tensortap
