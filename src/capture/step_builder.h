// The step that is being recorded: puts rows, raw values and texts into a StepRecord, at most one
// of each a tensor, the latest winning. The record is taken from the pool when the first thing
// arrives, so that a step in which nothing happens costs nothing. Used by Recorder under its mutex.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "capture/step_pool.h"
#include "trace/step_record.h"

namespace tensortap {

class StepBuilder {
 public:
  explicit StepBuilder(StepPool& pool) : pool_(pool) {}

  // `row` replaces an earlier row of its tensor. A raw value of the tensor that came with the
  // earlier row goes with it; put_raw afterwards sets the new one.
  void put_row(const StatisticsRow& row);
  void put_raw(RawTensor raw);
  void put_text(TensorId tensor, std::string_view text);

  // Gives `tensor` what this step holds of `source`, as far as it is asked for. False, and nothing
  // done, when the step holds less than that.
  bool put_same(TensorId tensor, TensorId source, bool with_histogram, bool with_raw);

  // Whether this step holds a raw value of the tensor.
  bool has_raw(TensorId tensor) const;
  bool is_empty() const { return record_ == nullptr; }

  // Hands over the record (null when nothing was put) and starts the next.
  std::shared_ptr<StepRecord> take();

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  // Where in the record a tensor's things are. Belongs to an older step when `serial` is not the
  // current one.
  struct Slot {
    std::uint64_t serial = 0;
    std::uint32_t row = kNone;
    std::uint32_t raw = kNone;
    std::uint32_t text = kNone;
  };

  Slot& slot(TensorId tensor);
  StepRecord& record();
  void remove_raw(Slot& place);

  StepPool& pool_;
  std::shared_ptr<StepRecord> record_;
  std::vector<Slot> slots_;  // by tensor
  std::uint64_t serial_ = 1;
};

}  // namespace tensortap
