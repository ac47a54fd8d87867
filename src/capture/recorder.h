// The one engine under every framework hook: decides what is due, computes statistics, copies raw
// values, counts steps and modes, and hands finished steps to the writer and to the sinks. Knows no
// framework. record*() and intern() may be called from several threads at once (autograd has its
// own); everything else from one thread at a time, and begin_step, end_step, set_mode and close not
// while others record. After fork the child's recorder is inert, and so is a closed one. Methods
// throw Error for a caller's mistakes; what happens inside a step (a failing disk, a full queue, no
// memory) never throws: it is counted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/collection.h"
#include "capture/record_item.h"
#include "capture/step_plan.h"
#include "capture/step_sink.h"
#include "storage/storage.h"
#include "trace/trace_writer.h"

namespace tensortap {

struct RecorderOptions {
  std::string out_dir;               // a path or URI
  std::shared_ptr<Storage> storage;  // instead of out_dir, when given
  std::string worker = "worker_0";
  std::string framework;  // "pytorch 2.13.0": for run.json
  bool resume = false;    // go on in a run that this worker has already written to
  bool dry_run = false;   // count and plan, write nothing
  SaveConfig save_config = SaveConfig::for_all_modes({});
  ReductionConfig reduction_config;  // for collections without their own
  std::vector<std::string> include_collections;
  bool save_all = false;            // every tensor: collection "all" with regex ".*" is included
  std::size_t compute_threads = 0;  // besides the caller; 0 = none
  TraceWriterOptions
      writer;  // worker, run_id, session and dictionary are filled in by the Recorder
  std::string configuration_json = "{}";  // kept in run.json as it is
};

class Recorder {
 public:
  // Opens the run. `collections` are the framework's built-in ones plus the user's. Throws
  // Error(kAlreadyExists) when this worker has already written to out_dir and resume is false; the
  // message says how to go on.
  Recorder(RecorderOptions options, CollectionSet collections);
  ~Recorder();  // closes
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  CollectionSet& collections();
  // To be called after collections or configuration changed once steps have begun: the next step
  // plans anew.
  void invalidate_plan();
  // From the next step on, for `step_count` steps: statistics and histograms (and raw values) of
  // these collections at every step; no collection given: of those that are being saved. Replaces
  // what is left of an earlier call. Between steps or from a sink, on the training thread.
  void raise_detail(std::span<const std::string> detail_collections, std::int64_t step_count,
                    bool with_raw);

  // Once a tensor; the same name gives the same id. `collections` are added to those whose regex
  // matches.
  TensorId intern(std::string_view name, std::span<const std::string> collections = {});
  std::optional<TensorId> find(std::string_view name) const;
  // Whether any collection that is being saved could ever want a tensor of this name, interned or
  // not (so that a hook need not look at it). `collections` as for intern(). Holds until
  // plan_version() changes.
  bool is_included(std::string_view name, std::span<const std::string> collections = {}) const;
  std::uint64_t plan_version() const;  // +1 for each invalidate_plan()

  // Of the next step. A change ends an open step first, so that what is said next goes to the new
  // mode.
  void set_mode(Mode mode);
  Mode mode() const;
  std::int64_t step() const;                // global; -1 before the first
  std::int64_t mode_step(Mode mode) const;  // -1 before the first

  // Ends an open step first. The plan is valid until the next begin_step.
  const StepPlan& begin_step();
  const StepPlan& plan() const;
  bool in_step() const;
  // begin_step() for the steps between two that are due, at next to no cost: false, and nothing
  // done, unless neither the next step nor the one after it is due and the open one holds nothing.
  // A caller that is not the `driver` only makes sure that a step is open.
  bool begin_idle_step(bool driver) noexcept;
  bool is_next_step_due() const;  // as far as the collections say now

  // Statistics (and a raw copy when planned) of a tensor that is due; not due: nothing happens. The
  // view's memory is read before the call returns. A second record of the same tensor in a step
  // replaces the first.
  void record(TensorId tensor, const TensorView& view);
  // The same for many tensors, shared out over the threads.
  void record_batch(std::span<const RecordItem> items);
  // For memory that was recorded as `source` in this step and has not changed since: one module's
  // output is the next one's input. False when `tensor` is due but must be recorded on its own.
  bool record_same(TensorId tensor, TensorId source);
  // Statistics that the framework computed (on a GPU).
  void record_statistics(TensorId tensor, const Layout& layout, const Statistics& statistics,
                         const Histogram* histogram = nullptr);
  // A number that the hook itself looked up.
  void record_number(TensorId tensor, double value);
  // Not gated by the plan: what a script says explicitly is kept, with the step it was said in,
  // saved or not. Outside a step they go to the next one; at close() without a next one, to a step
  // of their own. The name is final (a hook adds "scalar/").
  void record_scalar(std::string_view name, double value);
  void record_text(std::string_view name, std::string_view text);
  // A raw value that the script asked for, whatever the plan says (save_tensor), with its
  // statistics.
  void record_raw(TensorId tensor, const TensorView& view);

  // Hands the step on. Nothing recorded: nothing is written. Idempotent between steps.
  void end_step();

  // Ends the step, but holds it (and those after it) back until complete_step, for statistics that
  // a device still computes. Gives the step's ticket, 0 when no step is open.
  std::uint64_t defer_step();
  // Adds `items` (a tensor at most once; due when they were recorded) and hands the step on. A step
  // that close() finds held back goes without them.
  void complete_step(std::uint64_t ticket, std::span<const ComputedItem> items);

  // Not owned; sinks are called in order of addition after the step was handed to the writer.
  void add_sink(StepSink* sink);
  void set_source(StepSource* source);
  const Dictionary& dictionary() const;

  // collections/<worker>.json; written at the first end_step and at close when it changed.
  void export_collections();
  // A file beside the trace that a hook writes at the end. A dry run has none.
  void put_document(std::string_view name, std::string_view content);
  bool flush(std::int64_t timeout_ns) noexcept;
  // Ends the open step, drains the writer, writes end/<worker>.json. Idempotent, does not throw.
  void close() noexcept;
  bool is_closed() const;

  // Steps lost before they reached the writer are among the dropped ones.
  TraceWriterCounters counters() const;
  // What went wrong inside steps besides the writer's own trouble; the first was logged.
  std::uint64_t fault_count() const;
  const std::string& run_id() const;
  Storage& storage();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
