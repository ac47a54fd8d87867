// What is due at the current step: one bit a tensor, and what of it to keep. Recomputed only when the set of due
// collections changes. Asking costs one bit test. Written by Recorder, read by hooks on the training thread.
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
  friend class Recorder;
  bool any_due_ = false;  // some collection that is being saved is due, whether or not it has tensors yet
  std::vector<std::uint8_t> flags_;
};

}  // namespace tensortap
