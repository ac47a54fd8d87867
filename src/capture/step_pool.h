// Recycles StepRecords, so that a training that records every step allocates next to nothing. A
// record returns when its last owner (writer, rule, recorder) lets go, cleared, with its memory;
// records may outlive the pool. Used by Recorder. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "trace/step_record.h"

namespace tensortap {

class StepPool {
 public:
  // Records given back beyond this many idle ones are freed.
  explicit StepPool(std::size_t idle_limit);

  std::shared_ptr<StepRecord> acquire();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tensortap
