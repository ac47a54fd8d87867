// Who adds to a step what nobody in the training recorded: metrics of the machine. Declared here,
// implemented above, joined in session/.
#pragma once

namespace tensortap {

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
