// The way of a finished step to the writer and the sinks, and steps that are held back on it while
// a device computes their statistics: the training goes on with the next steps meanwhile, and all
// of them are handed on in order.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "capture/recorder_state.h"

namespace tensortap {
namespace {

// The tensor's row among the first `count`, or a new one.
StatisticsRow& row_for(StepRecord& record, std::size_t count, TensorId tensor) {
  const auto end = record.rows.begin() + static_cast<std::ptrdiff_t>(count);
  const auto found = std::find_if(record.rows.begin(), end, [tensor](const StatisticsRow& row) {
    return row.tensor == tensor;
  });
  return found != end ? *found : record.rows.emplace_back();
}

bool is_empty(const StepRecord& record) {
  return record.rows.empty() && record.raws.empty() && record.texts.empty();
}

}  // namespace

void Recorder::State::hand_over(std::shared_ptr<StepRecord> record) noexcept {
  stamp(*record);
  if (deferred.empty()) {
    pass_on(std::move(record));
  } else {
    queue_behind_deferred(std::move(record));
  }
}

void Recorder::State::pass_on(std::shared_ptr<StepRecord> record) noexcept {
  const std::int64_t number = record->info.step;
  try {
    {
      const std::lock_guard lock(mutex);
      table.give_new_definitions(*record);
    }
    const std::shared_ptr<const StepRecord> finished = std::move(record);
    if (writer != nullptr) writer->submit(finished);
    for (StepSink* sink : sinks) sink->on_step(finished, table.dictionary());
  } catch (const std::exception& error) {
    ++lost_steps;
    note_fault(fmt::format("step {} was lost: {}", number, error.what()));
  }
}

std::uint64_t Recorder::State::defer_step() {
  std::shared_ptr<StepRecord> record;
  {
    const std::lock_guard lock(mutex);
    in_step = false;
    record = builder.take();
  }
  if (record == nullptr) record = steps.acquire();
  stamp(*record);
  deferred.push_back({step_serial, std::move(record), false});
  return step_serial;
}

void Recorder::State::queue_behind_deferred(std::shared_ptr<StepRecord> record) noexcept {
  const std::int64_t number = record->info.step;
  try {
    deferred.push_back({step_serial, std::move(record), true});
  } catch (const std::exception& error) {
    ++lost_steps;
    note_fault(fmt::format("step {} was lost: {}", number, error.what()));
  }
}

void Recorder::State::put_computed(const ComputedItem& item, std::size_t host_rows,
                                   StepRecord& record) {
  StatisticsRow& row = row_for(record, host_rows, item.tensor);
  row.tensor = item.tensor;
  row.has_histogram = item.has_histogram;
  merge_parts(item.parts, row.statistics, item.has_histogram ? &row.histogram : nullptr);
  std::erase_if(record.raws, [&](const RawTensor& raw) { return raw.tensor == item.tensor; });
  BufferPool::Buffer raw;
  if (item.view.data != nullptr && needs_copy(StepPlan::kRaw, item.view, row.statistics)) {
    raw = copy(item.view);
  }
  const std::lock_guard lock(mutex);
  row.layout = table.intern_layout(item.tensor, item.view.dtype, item.view.shape);
  if (raw.data != nullptr) record.raws.push_back({item.tensor, row.layout, std::move(raw)});
}

void Recorder::State::pass_on_complete() noexcept {
  while (!deferred.empty() && deferred.front().is_complete) {
    std::shared_ptr<StepRecord> record = std::move(deferred.front().record);
    deferred.pop_front();
    if (!is_empty(*record)) pass_on(std::move(record));
  }
}

void Recorder::State::release_deferred() noexcept {
  for (DeferredStep& step : deferred) step.is_complete = true;
  pass_on_complete();
}

std::uint64_t Recorder::defer_step() {
  State& state = *state_;
  if (state.is_inert() || !state.in_step) return 0;
  return state.defer_step();
}

void Recorder::complete_step(std::uint64_t ticket, std::span<const ComputedItem> items) {
  State& state = *state_;
  if (state.is_inert()) return;
  const auto found = std::find_if(
      state.deferred.begin(), state.deferred.end(),
      [ticket](const DeferredStep& step) { return step.serial == ticket && !step.is_complete; });
  if (found == state.deferred.end()) return;
  {
    const std::lock_guard lock(state.mutex);
    for (const ComputedItem& item : items) state.check_tensor(item.tensor);
  }
  try {
    StepRecord& record = *found->record;
    const std::size_t host_rows = record.rows.size();
    record.rows.reserve(host_rows + items.size());
    for (const ComputedItem& item : items) state.put_computed(item, host_rows, record);
  } catch (const std::exception& error) {
    state.note_fault(fmt::format("statistics of a device were not recorded: {}", error.what()));
  }
  found->is_complete = true;
  state.pass_on_complete();
}

}  // namespace tensortap
