#include "capture/step_pool.h"

#include <mutex>
#include <utility>
#include <vector>

namespace tensortap {

struct StepPool::State {
  explicit State(std::size_t limit) : idle_limit(limit) { idle.reserve(limit); }

  std::unique_ptr<StepRecord> take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return nullptr;
    std::unique_ptr<StepRecord> record = std::move(idle.back());
    idle.pop_back();
    return record;
  }

  void give_back(std::unique_ptr<StepRecord> record) noexcept {
    record->clear();  // outside the lock: it gives raw buffers back to their pool
    const std::lock_guard lock(mutex);
    if (idle.size() < idle_limit) idle.push_back(std::move(record));
  }

  const std::size_t idle_limit;
  std::mutex mutex;
  std::vector<std::unique_ptr<StepRecord>> idle;
};

StepPool::StepPool(std::size_t idle_limit) : state_(std::make_shared<State>(idle_limit)) {}

std::shared_ptr<StepRecord> StepPool::acquire() {
  std::unique_ptr<StepRecord> record = state_->take();
  if (record == nullptr) record = std::make_unique<StepRecord>();
  // The record is the deleter's before the control block is allocated: shared_ptr calls the deleter
  // when that allocation fails.
  return {record.release(), [state = state_](StepRecord* returned) {
            state->give_back(std::unique_ptr<StepRecord>(returned));
          }};
}

}  // namespace tensortap
