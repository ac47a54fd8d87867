// The recording half of Recorder: statistics and copies are made outside the mutex, rows are put
// under it.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "capture/recorder_state.h"

namespace tensortap {
namespace {

// Whole numbers of this magnitude and more need not be a double.
constexpr double kExactIntegerLimit = 9007199254740992.0;  // 2^53

// What makes a view unreadable, as the end of "the tensor has ..."; null when nothing does.
const char* view_fault(const TensorView& view) {
  if (std::any_of(view.shape.begin(), view.shape.end(), [](std::int64_t n) { return n < 0; })) {
    return "a negative extent";
  }
  if (!view.strides_bytes.empty() && view.strides_bytes.size() != view.shape.size()) {
    return "not as many strides as dimensions";
  }
  if (view.data == nullptr && view.element_count() > 0) return "elements but no memory";
  return nullptr;
}

bool is_wide_integer(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kUInt64; }

}  // namespace

void Recorder::State::check_tensor(TensorId tensor) const {
  if (tensor < table.size()) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no tensor has the id {}", tensor));
}

void Recorder::State::throw_view_fault(TensorId tensor, const char* fault) const {
  const std::lock_guard lock(mutex);
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("the tensor '{}' has {}", table.dictionary().tensors[tensor].name, fault));
}

Recorder::State::Ticket Recorder::State::admit(TensorId tensor) const {
  check_tensor(tensor);
  if (!in_step) return {};
  std::uint8_t flags = planner.current().flags(tensor);
  // Somebody wanted the raw value in this step: it follows the statistics.
  if (flags != 0 && builder.has_raw(tensor)) flags |= StepPlan::kRaw;
  return {step_serial, flags};
}

Recorder::State::Ticket Recorder::State::admit_locked(TensorId tensor) const {
  const std::lock_guard lock(mutex);
  return admit(tensor);
}

Recorder::State::Ticket Recorder::State::admit(TensorId tensor, const TensorView& view) const {
  const Ticket ticket = admit_locked(tensor);
  const char* fault = ticket.flags == 0 ? nullptr : view_fault(view);
  if (fault != nullptr) throw_view_fault(tensor, fault);
  return ticket;
}

void Recorder::State::put(const Ticket& ticket, StatisticsRow& row, const TensorView& view,
                          BufferPool::Buffer raw) {
  // The step may have ended while the statistics were computed.
  if (!in_step || step_serial != ticket.step_serial) return;
  row.layout = table.intern_layout(row.tensor, view.dtype, view.shape);
  builder.put_row(row);
  if (raw.data != nullptr) builder.put_raw({row.tensor, row.layout, std::move(raw)});
}

bool Recorder::State::needs_copy(std::uint8_t flags, const TensorView& view,
                                 const Statistics& statistics) {
  if ((flags & StepPlan::kRaw) == 0) return false;
  if (statistics.count != 1 || dtype_is_complex(view.dtype)) return true;
  return is_wide_integer(view.dtype) &&
         std::max(-statistics.min, statistics.max) >= kExactIntegerLimit;
}

BufferPool::Buffer Recorder::State::copy(const TensorView& view) {
  BufferPool::Buffer buffer = buffers.acquire(view.size_bytes());
  if (buffer.size_bytes > 0) copy_dense(view, buffer.data.get());
  return buffer;
}

std::unique_ptr<BatchScratch> Recorder::State::take_scratch() {
  const std::lock_guard lock(mutex);
  if (scratches.empty()) return std::make_unique<BatchScratch>();
  std::unique_ptr<BatchScratch> scratch = std::move(scratches.back());
  scratches.pop_back();
  return scratch;
}

void Recorder::State::give_scratch(std::unique_ptr<BatchScratch> scratch) {
  scratch->items.clear();
  scratch->flags.clear();
  scratch->tasks.clear();
  scratch->raws.clear();
  const std::lock_guard lock(mutex);
  scratches.push_back(std::move(scratch));
}

// ---- one tensor ----

void Recorder::record(TensorId tensor, const TensorView& view) {
  State& state = *state_;
  if (state.is_inert()) return;
  const State::Ticket ticket = state.admit(tensor, view);
  if (ticket.flags == 0) return;
  try {
    StatisticsRow row;
    row.tensor = tensor;
    row.has_histogram = (ticket.flags & StepPlan::kHistogram) != 0;
    compute_statistics(view, row.statistics, row.has_histogram ? &row.histogram : nullptr,
                       state.threads.get());
    BufferPool::Buffer raw;
    if (State::needs_copy(ticket.flags, view, row.statistics)) raw = state.copy(view);
    const std::lock_guard lock(state.mutex);
    state.put(ticket, row, view, std::move(raw));
  } catch (const std::exception& error) {
    state.note_fault(fmt::format("a tensor was not recorded: {}", error.what()));
  }
}

bool Recorder::record_same(TensorId tensor, TensorId source) {
  State& state = *state_;
  if (state.is_inert()) return true;
  const std::lock_guard lock(state.mutex);
  const State::Ticket ticket = state.admit(tensor);
  state.check_tensor(source);
  if (ticket.flags == 0) return true;
  try {
    return state.builder.put_same(tensor, source, (ticket.flags & StepPlan::kHistogram) != 0,
                                  (ticket.flags & StepPlan::kRaw) != 0);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Recorder::record_statistics(TensorId tensor, const Layout& layout,
                                 const Statistics& statistics, const Histogram* histogram) {
  State& state = *state_;
  if (state.is_inert()) return;
  const State::Ticket ticket = state.admit_locked(tensor);
  if (ticket.flags == 0) return;
  try {
    StatisticsRow row;
    row.tensor = tensor;
    row.statistics = statistics;
    row.has_histogram = histogram != nullptr && (ticket.flags & StepPlan::kHistogram) != 0;
    if (row.has_histogram) row.histogram = *histogram;
    TensorView view;
    view.dtype = layout.dtype;
    view.shape = layout.shape;
    const std::lock_guard lock(state.mutex);
    state.put(ticket, row, view, {});
  } catch (const std::exception& error) {
    state.note_fault(fmt::format("a tensor's statistics were not recorded: {}", error.what()));
  }
}

void Recorder::record_number(TensorId tensor, double value) {
  TensorView view;
  view.data = &value;
  view.dtype = DType::kFloat64;
  record(tensor, view);
}

// ---- what a script says itself: in a step or between two ----

void Recorder::record_scalar(std::string_view name, double value) {
  State& state = *state_;
  if (state.is_inert()) return;
  TensorView view;
  view.data = &value;
  view.dtype = DType::kFloat64;
  StatisticsRow row;
  compute_statistics(view, row.statistics, nullptr);
  try {
    const std::lock_guard lock(state.mutex);
    row.tensor = state.intern(name, {});
    row.layout = state.table.intern_layout(row.tensor, view.dtype, view.shape);
    state.builder.put_row(row);
  } catch (const std::bad_alloc& error) {
    state.note_fault(fmt::format("a scalar was not recorded: {}", error.what()));
  }
}

void Recorder::record_text(std::string_view name, std::string_view text) {
  State& state = *state_;
  if (state.is_inert()) return;
  try {
    const std::lock_guard lock(state.mutex);
    state.builder.put_text(state.intern(name, {}), text);
  } catch (const std::bad_alloc& error) {
    state.note_fault(fmt::format("a text was not recorded: {}", error.what()));
  }
}

void Recorder::record_raw(TensorId tensor, const TensorView& view) {
  State& state = *state_;
  if (state.is_inert()) return;
  const std::uint8_t planned = state.admit_locked(tensor).flags;
  if (const char* fault = view_fault(view)) state.throw_view_fault(tensor, fault);
  try {
    StatisticsRow row;
    row.tensor = tensor;
    row.has_histogram = (planned & StepPlan::kHistogram) != 0;
    compute_statistics(view, row.statistics, row.has_histogram ? &row.histogram : nullptr,
                       state.threads.get());
    BufferPool::Buffer raw;
    if (State::needs_copy(StepPlan::kRaw, view, row.statistics)) raw = state.copy(view);
    const std::lock_guard lock(state.mutex);
    row.layout = state.table.intern_layout(tensor, view.dtype, view.shape);
    state.builder.put_row(row);
    if (raw.data != nullptr) state.builder.put_raw({tensor, row.layout, std::move(raw)});
  } catch (const std::exception& error) {
    state.note_fault(fmt::format("a tensor was not recorded: {}", error.what()));
  }
}

// ---- many tensors ----

namespace {

void compute_batch(BatchScratch& batch, ThreadPool* threads) {
  const std::size_t count = batch.items.size();
  // Never shrunk: a row is fully written where it is used.
  if (batch.rows.size() < count) batch.rows.resize(count);
  batch.tasks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    StatisticsRow& row = batch.rows[i];
    row.tensor = batch.items[i].tensor;
    row.has_histogram = (batch.flags[i] & StepPlan::kHistogram) != 0;
    batch.tasks[i] = {batch.items[i].view, &row.statistics,
                      row.has_histogram ? &row.histogram : nullptr};
  }
  compute_statistics_batch(batch.tasks, threads);
}

void copy_all(const BatchScratch& batch, ThreadPool* threads) {
  const auto copy_one = [&](std::size_t i) {
    const BufferPool::Buffer& raw = batch.raws[i];
    if (raw.data != nullptr && raw.size_bytes > 0) copy_dense(batch.items[i].view, raw.data.get());
  };
  if (threads != nullptr) {
    threads->parallel_for(batch.items.size(), copy_one);
  } else {
    for (std::size_t i = 0; i < batch.items.size(); ++i) copy_one(i);
  }
}

}  // namespace

// Those of the items that are due. An item with a faulty view is left out; the first of them is
// returned.
std::optional<RecordItem> Recorder::State::gather(std::span<const RecordItem> items,
                                                  BatchScratch& batch, Ticket& ticket) {
  std::optional<RecordItem> faulty;
  const std::lock_guard lock(mutex);
  for (const RecordItem& item : items) {
    ticket = admit(item.tensor);
    if (ticket.flags == 0) continue;
    if (view_fault(item.view) != nullptr) {
      if (!faulty) faulty = item;
      continue;
    }
    batch.items.push_back(item);
    batch.flags.push_back(ticket.flags);
  }
  return faulty;
}

void Recorder::State::record_gathered(BatchScratch& batch, const Ticket& ticket) {
  const std::size_t count = batch.items.size();
  compute_batch(batch, threads.get());
  batch.raws.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const TensorView& view = batch.items[i].view;
    if (!needs_copy(batch.flags[i], view, batch.rows[i].statistics)) continue;
    batch.raws[i] = buffers.acquire(view.size_bytes());
  }
  copy_all(batch, threads.get());
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < count; ++i) {
    put(ticket, batch.rows[i], batch.items[i].view, std::move(batch.raws[i]));
  }
}

void Recorder::record_batch(std::span<const RecordItem> items) {
  State& state = *state_;
  if (state.is_inert() || items.empty()) return;
  std::unique_ptr<BatchScratch> batch = state.take_scratch();
  State::Ticket ticket;
  const std::optional<RecordItem> faulty = state.gather(items, *batch, ticket);
  try {
    if (!batch->items.empty()) state.record_gathered(*batch, ticket);
    state.give_scratch(std::move(batch));
  } catch (const std::exception& error) {
    state.note_fault(fmt::format("{} tensors were not recorded: {}", items.size(), error.what()));
  }
  // Last, so that one bad tensor does not cost the others.
  if (faulty) state.throw_view_fault(faulty->tensor, view_fault(faulty->view));
}

}  // namespace tensortap
