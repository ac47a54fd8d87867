// The inside of a Recorder, shared by the files that implement it and by nobody else.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer_pool.h"
#include "base/thread_pool.h"
#include "capture/fork_guard.h"
#include "capture/recorder.h"
#include "capture/step_builder.h"
#include "capture/step_planner.h"
#include "capture/step_pool.h"
#include "capture/tensor_table.h"
#include "tensor/compute_statistics.h"

namespace tensortap {

// What record_batch works in; kept, since fresh pages cost more than the statistics of a small
// tensor.
struct BatchScratch {
  std::vector<RecordItem> items;  // those that are due
  std::vector<std::uint8_t> flags;
  std::vector<StatisticsRow> rows;
  std::vector<StatisticsTask> tasks;
  std::vector<BufferPool::Buffer> raws;  // null where none is kept
};

// A step that has ended and is held back.
struct DeferredStep {
  std::uint64_t serial = 0;
  std::shared_ptr<StepRecord> record;
  bool is_complete = false;
};

struct Recorder::State {
  State(RecorderOptions options, CollectionSet collections);
  // Opens the run and starts the writer.
  void open();

  bool is_inert() const noexcept { return is_closed || fork_guard.is_forked_child(); }
  void advance_counters();
  void configure_planner();
  void begin_step();
  void open_step();
  bool begin_idle_step(bool driver) noexcept;
  void end_step() noexcept;
  void close() noexcept;
  // Things said after the last step ended: they get a step of their own rather than be lost.
  void end_pending() noexcept;
  // Stamps a finished record and passes it on, now or after the steps that are held back.
  void hand_over(std::shared_ptr<StepRecord> record) noexcept;
  void stamp(StepRecord& record) noexcept;
  void pass_on(std::shared_ptr<StepRecord> record) noexcept;
  // recorder_deferred.cc
  std::uint64_t defer_step();
  void queue_behind_deferred(std::shared_ptr<StepRecord> record) noexcept;
  void put_computed(const ComputedItem& item, std::size_t host_rows, StepRecord& record);
  void pass_on_complete() noexcept;
  void release_deferred() noexcept;  // as they are
  void export_collections();
  void export_collections_if_changed() noexcept;

  // These need the mutex.
  TensorId intern(std::string_view name, std::span<const std::string> explicit_collections);
  std::vector<std::string> join_collections(std::string_view name);
  void check_tensor(TensorId tensor) const;

  // What a record() call may do: nothing when flags is 0.
  struct Ticket {
    std::uint64_t step_serial = 0;
    std::uint8_t flags = 0;
  };
  Ticket admit(TensorId tensor) const;  // needs the mutex
  // Gives the row its layout and puts it, with the raw value if there is one, unless the step has
  // ended. Needs the mutex.
  void put(const Ticket& ticket, StatisticsRow& row, const TensorView& view,
           BufferPool::Buffer raw);

  // These take the mutex.
  Ticket admit_locked(TensorId tensor) const;
  Ticket admit(TensorId tensor, const TensorView& view) const;  // throws for an unreadable view
  std::optional<RecordItem> gather(std::span<const RecordItem> items, BatchScratch& batch,
                                   Ticket& ticket);
  void record_gathered(BatchScratch& batch, const Ticket& ticket);
  std::unique_ptr<BatchScratch> take_scratch();
  void give_scratch(std::unique_ptr<BatchScratch> scratch);
  [[noreturn]] void throw_view_fault(TensorId tensor, const char* fault) const;

  // Whether the plan's wish for a raw value needs a copy: a row holds the value of one real
  // element.
  static bool needs_copy(std::uint8_t flags, const TensorView& view, const Statistics& statistics);
  BufferPool::Buffer copy(const TensorView& view);
  // Says the first one, counts all.
  void note_fault(std::string_view what) noexcept;
  TraceWriterCounters counters() const;

  const RecorderOptions options;
  const ForkGuard fork_guard;
  std::shared_ptr<Storage> storage;
  std::string run_id;
  std::unique_ptr<TraceWriter> writer;  // null in a dry run
  std::unique_ptr<ThreadPool> threads;  // null when the caller computes alone
  BufferPool buffers;
  StepPool steps;
  std::vector<StepSink*> sinks;
  StepSource* source = nullptr;

  // Guards what recording threads share: from here to step_serial, and collections' tensor names.
  mutable std::mutex mutex;
  CollectionSet collections;
  TensorTable table;
  StepPlanner planner;
  StepBuilder builder;
  bool is_planned = false;     // the planner knows the tensors
  bool needs_planning = true;  // the next step configures it
  bool is_checked = false;     // that collections to be saved can match something
  bool in_step = false;
  std::uint64_t step_serial = 0;
  std::vector<std::unique_ptr<BatchScratch>> scratches;

  // Of the training thread.
  std::uint64_t plan_version = 0;
  Mode mode = Mode::kGlobal;
  std::int64_t step = -1;
  std::array<std::int64_t, kModeCount> mode_steps;  // index: mode number - 1
  std::uint32_t session = 0;
  Mode step_mode = Mode::kGlobal;     // of the open step
  std::int64_t begun_ns = 0;          // of the open step, monotonic
  std::int64_t idle_before = 0;       // no step of this mode that comes before that one is due
  std::int64_t handed_step = -1;      // the last one that was handed over
  std::deque<DeferredStep> deferred;  // in order; the first is not complete
  std::string exported_collections;
  std::size_t exported_count = 0;
  bool is_closed = false;

  std::atomic<std::uint64_t> faults = 0;
  std::atomic<std::uint64_t> lost_steps = 0;
  mutable std::mutex fault_mutex;
  std::string last_fault;
};

}  // namespace tensortap
