// Who else sees a finished step, besides the writer: rules and live trials. Declared here,
// implemented above (trial/live_source), joined in session/.
#pragma once

#include <memory>

#include "trace/step_record.h"

namespace tensortap {

class StepSink {
 public:
  virtual ~StepSink() = default;
  // Called on the training thread at end_step, in the order of steps. `dictionary` is complete up
  // to this step and only valid during the call. Must not throw.
  virtual void on_step(const std::shared_ptr<const StepRecord>& step,
                       const Dictionary& dictionary) noexcept = 0;
};

}  // namespace tensortap
