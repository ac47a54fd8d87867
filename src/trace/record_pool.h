// Step records that are used again once everybody has let go of them: a record of 300 rows with
// room for histograms is 200 KiB, too much to allocate at every step. Used by trace/ only. Records
// may be released on any thread and may outlive the pool.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trace/step_record.h"

namespace tensortap::trace {

class RecordPool {
 public:
  // A record whose vectors keep their memory; the caller sets every field.
  std::shared_ptr<StepRecord> acquire() {
    std::unique_ptr<StepRecord> record = state_->take();
    if (record == nullptr) record = std::make_unique<StepRecord>();
    return {record.release(), [state = state_](StepRecord* released) {
              state->give_back(std::unique_ptr<StepRecord>(released));
            }};
  }

 private:
  static constexpr std::size_t kIdleLimit = 4;

  struct State {
    std::unique_ptr<StepRecord> take() {
      const std::lock_guard lock(mutex);
      if (idle.empty()) return nullptr;
      std::unique_ptr<StepRecord> record = std::move(idle.back());
      idle.pop_back();
      return record;
    }
    void give_back(std::unique_ptr<StepRecord> record) noexcept {
      const std::lock_guard lock(mutex);
      if (idle.size() < kIdleLimit) idle.push_back(std::move(record));
    }
    State() { idle.reserve(kIdleLimit); }

    std::mutex mutex;
    std::vector<std::unique_ptr<StepRecord>> idle;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tensortap::trace
