// Who else sees a finished step, besides the writer: rules and live trials. And who adds to a step
// what nobody in the training recorded: metrics of the machine. Declared here, implemented above
// (trial/live_source, session/system_metrics), joined in session/.
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

class StepSource {
 public:
  virtual ~StepSource() = default;
  // On the training thread, when a step is about to end; it may record. `is_due`: something of the
  // step is saved anyway. Must not throw.
  virtual void add_to_step(bool is_due) noexcept = 0;
  // On the thread that closes the recorder, after the last step: what is recorded now gets a step
  // of its own.
  virtual void add_rest() noexcept = 0;
};

}  // namespace tensortap
