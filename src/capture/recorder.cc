#include "capture/recorder.h"

#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "capture/recorder_state.h"
#include "capture/run_files.h"

namespace tensortap {
namespace {

// Finished steps that are kept for reuse; the writer holds more when it is behind.
constexpr std::size_t kIdleSteps = 8;
constexpr std::string_view kAll = "all";

std::size_t index_of(Mode mode) { return static_cast<std::size_t>(mode) - 1; }

PlannerDefaults planner_defaults(const RecorderOptions& options) {
  PlannerDefaults defaults{options.save_config, options.reduction_config, {}};
  defaults.included.insert(options.include_collections.begin(), options.include_collections.end());
  if (options.save_all) defaults.included.emplace(kAll);
  return defaults;
}

// A collection that is to be saved exists; `all` is what its name says.
void complete_collections(const PlannerDefaults& defaults, CollectionSet& collections) {
  for (const std::string& name : defaults.included) {
    Collection& collection = collections.get_or_create(name);
    if (name == kAll && collection.include_regex().empty()) collection.include(".*");
  }
}

RunRequest run_request(const RecorderOptions& options) {
  return {options.worker, options.framework, options.configuration_json, options.resume};
}

}  // namespace

Recorder::State::State(RecorderOptions given, CollectionSet given_collections)
    : options(std::move(given)),
      buffers(options.writer.queue_size_bytes),
      steps(kIdleSteps),
      collections(std::move(given_collections)),
      table(Dictionary{}),
      planner(planner_defaults(options)),
      builder(steps) {
  mode_steps.fill(-1);
  options.save_config.validate();
  complete_collections(planner_defaults(options), collections);
  validate_run_request(run_request(options));
  if (options.compute_threads > 0) {
    threads =
        std::make_unique<ThreadPool>(options.compute_threads, ThreadPool::Helpers::kHostOpenMp);
  }
  storage = options.storage ? options.storage : open_storage(options.out_dir);
}

void Recorder::State::open() {
  if (options.dry_run) {
    run_id = make_run_id();
    return;
  }
  OpenedRun run = open_run(*storage, run_request(options));
  run_id = run.id;
  session = run.resume_point.next_session;
  step = handed_step = run.resume_point.last_global_step;
  for (const StepInfo& last : run.resume_point.last_steps) {
    mode_steps[index_of(last.mode)] = last.mode_step;
  }
  mode_steps[index_of(Mode::kGlobal)] = step;
  table = TensorTable(run.resume_point.dictionary);

  TraceWriterOptions writer_options = options.writer;
  writer_options.worker = options.worker;
  writer_options.run_id = run.id;
  writer_options.session = session;
  writer_options.session_json = std::move(run.session_json);
  writer_options.dictionary = std::move(run.resume_point.dictionary);
  writer = std::make_unique<TraceWriter>(storage, std::move(writer_options));
}

// Reads the collections as they are now, for the tensors known so far. Needs the mutex.
void Recorder::State::configure_planner() {
  planner.configure(collections);
  if (!is_checked) planner.require_usable(collections);
  const std::size_t count = table.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::string> names = join_collections(table.dictionary().tensors[i].name);
    planner.add_tensor(names);
    table.correct_collections(static_cast<TensorId>(i), std::move(names));
  }
  is_checked = is_planned = true;
  needs_planning = false;
}

// The global step counts every step; GLOBAL as a mode counts the same.
void Recorder::State::advance_counters() {
  ++step;
  ++mode_steps[index_of(mode)];
  mode_steps[index_of(Mode::kGlobal)] = step;
}

void Recorder::State::open_step() {
  advance_counters();
  step_mode = mode;
  ++step_serial;
  in_step = true;
  begun_ns = monotonic_time_ns();
}

void Recorder::State::begin_step() {
  end_step();
  const std::lock_guard lock(mutex);
  if (planner.count_down_override()) {
    needs_planning = true;
    ++plan_version;
  }
  if (needs_planning) configure_planner();
  open_step();
  const std::int64_t mode_step = mode_steps[index_of(mode)];
  const bool any_due = planner.select(mode, mode_step).any_due();
  idle_before = any_due ? 0 : planner.next_due(mode, mode_step);
}

bool Recorder::State::begin_idle_step(bool driver) noexcept {
  const std::lock_guard lock(mutex);
  if (needs_planning || planner.override_detail() || idle_before == 0) return false;
  if (!driver && in_step) return true;
  if (!builder.is_empty()) return false;
  // The step after it, too: a hook prepares for a step that is due.
  if (mode_steps[index_of(mode)] + 2 >= idle_before) return false;
  open_step();
  return true;
}

void Recorder::State::end_step() noexcept {
  if (!in_step) return;
  if (source != nullptr) source->add_to_step(planner.current().any_due());
  std::shared_ptr<StepRecord> record;
  {
    const std::lock_guard lock(mutex);
    in_step = false;
    record = builder.take();
  }
  if (record != nullptr) hand_over(std::move(record));
  if (exported_count != collections.size()) export_collections_if_changed();
}

void Recorder::State::stamp(StepRecord& record) noexcept {
  const std::int64_t duration_ns = monotonic_time_ns() - begun_ns;
  record.info = {
      step,        step_mode, mode_steps[index_of(step_mode)], wall_time_ns() - duration_ns,
      duration_ns, session};
  handed_step = step;
}

void Recorder::State::end_pending() noexcept {
  std::shared_ptr<StepRecord> record;
  {
    const std::lock_guard lock(mutex);
    record = builder.take();
  }
  if (record == nullptr) return;
  // A second record of a step that was handed over would hide the first; a mode begins with its own
  // step.
  if (step == handed_step || mode != step_mode) advance_counters();
  step_mode = mode;
  begun_ns = monotonic_time_ns();
  hand_over(std::move(record));
}

void Recorder::State::export_collections() {
  std::string json;
  {
    const std::lock_guard lock(mutex);
    json = collections.to_json();
    exported_count = collections.size();
  }
  if (options.dry_run || json == exported_collections) return;
  storage->put(collections_name(options.worker), json);
  exported_collections = std::move(json);
}

void Recorder::State::export_collections_if_changed() noexcept {
  try {
    export_collections();
  } catch (const std::exception& error) {
    note_fault(fmt::format("the collections were not written: {}", error.what()));
  }
}

void Recorder::State::close() noexcept {
  if (is_inert()) return;
  end_step();
  if (source != nullptr) source->add_rest();
  end_pending();
  release_deferred();
  is_closed = true;
  if (options.dry_run) return;
  export_collections_if_changed();
  writer->close();
  try {
    write_end_mark(*storage, {options.worker, "closed", session, handed_step, counters()});
  } catch (const std::exception& error) {
    note_fault(fmt::format("the end of the run was not marked: {}", error.what()));
  }
}

TraceWriterCounters Recorder::State::counters() const {
  TraceWriterCounters result;
  if (writer != nullptr) result = writer->counters();
  result.dropped_steps += lost_steps;
  const std::lock_guard lock(fault_mutex);
  if (result.last_error.empty()) result.last_error = last_fault;
  return result;
}

void Recorder::State::note_fault(std::string_view what) noexcept {
  const bool is_first = faults.fetch_add(1) == 0;
  try {
    const std::lock_guard lock(fault_mutex);
    last_fault = what;
  } catch (const std::exception&) {
    // No memory to remember it: it is counted.
  }
  if (is_first) log(LogLevel::kWarning, what);
}

// The collections of a name; it is listed in each from now on. Needs the mutex.
std::vector<std::string> Recorder::State::join_collections(std::string_view name) {
  std::vector<std::string> names = collections.collections_of(name);
  for (const std::string& collection : names) collections.find(collection)->add_tensor_name(name);
  return names;
}

TensorId Recorder::State::intern(std::string_view name,
                                 std::span<const std::string> explicit_collections) {
  bool has_new_collection = false;
  for (const std::string& collection : explicit_collections) {
    if (collections.find(collection) == nullptr) {
      needs_planning = true;
      ++plan_version;
    }
    Collection& joined = collections.get_or_create(collection);
    if (joined.tensor_names().contains(name)) continue;
    joined.add_tensor_name(name);
    has_new_collection = true;
  }
  const std::optional<TensorId> known = table.find(name);
  if (known && !has_new_collection) return *known;

  std::vector<std::string> names = join_collections(name);
  if (known) {
    if (is_planned) planner.update_tensor(*known, names);
    table.correct_collections(*known, std::move(names));
    return *known;
  }
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, "a tensor needs a name");
  const TensorId id = table.add(name, names);
  if (is_planned) planner.add_tensor(names);
  return id;
}

Recorder::Recorder(RecorderOptions options, CollectionSet collections)
    : state_(std::make_unique<State>(std::move(options), std::move(collections))) {
  state_->open();
}

Recorder::~Recorder() {
  // The child of a fork has no writer thread to join, and its locks may be held by threads that it
  // lacks: it leaves everything as it is.
  if (state_->fork_guard.is_forked_child()) {
    (void)state_.release();
    return;
  }
  close();
}

CollectionSet& Recorder::collections() { return state_->collections; }

void Recorder::invalidate_plan() {
  state_->needs_planning = true;
  ++state_->plan_version;
}

std::uint64_t Recorder::plan_version() const { return state_->plan_version; }

TensorId Recorder::intern(std::string_view name, std::span<const std::string> collections) {
  if (state_->fork_guard.is_forked_child()) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->intern(name, collections);
}

std::optional<TensorId> Recorder::find(std::string_view name) const {
  if (state_->fork_guard.is_forked_child()) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  return state_->table.find(name);
}

bool Recorder::is_included(std::string_view name, std::span<const std::string> collections) const {
  if (state_->is_inert()) return false;
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> names = state_->collections.collections_of(name);
  names.insert(names.end(), collections.begin(), collections.end());
  if (!state_->needs_planning) return state_->planner.is_ever_due(names);
  StepPlanner planner(planner_defaults(state_->options));
  planner.set_override(state_->planner.override_detail());
  planner.configure(state_->collections);
  return planner.is_ever_due(names);
}

void Recorder::set_mode(Mode mode) {
  if (!mode_from_code(static_cast<std::uint8_t>(mode))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no such mode: {}", static_cast<int>(mode)));
  }
  if (state_->is_inert() || mode == state_->mode) return;
  state_->end_step();
  state_->mode = mode;
  state_->idle_before = 0;
}

Mode Recorder::mode() const { return state_->mode; }
std::int64_t Recorder::step() const { return state_->step; }
std::int64_t Recorder::mode_step(Mode mode) const { return state_->mode_steps.at(index_of(mode)); }

const StepPlan& Recorder::begin_step() {
  static const StepPlan kNothing;
  if (state_->is_inert()) return kNothing;
  state_->begin_step();
  return state_->planner.current();
}

const StepPlan& Recorder::plan() const { return state_->planner.current(); }
bool Recorder::in_step() const { return state_->in_step; }

bool Recorder::begin_idle_step(bool driver) noexcept {
  return state_->is_inert() || state_->begin_idle_step(driver);
}

bool Recorder::is_next_step_due() const {
  const std::int64_t next = state_->mode_steps[index_of(state_->mode)] + 1;
  return state_->planner.next_due(state_->mode, next) == next;
}

void Recorder::end_step() {
  if (!state_->is_inert()) state_->end_step();
}

void Recorder::add_sink(StepSink* sink) { state_->sinks.push_back(sink); }
void Recorder::set_source(StepSource* source) { state_->source = source; }
const Dictionary& Recorder::dictionary() const { return state_->table.dictionary(); }

void Recorder::export_collections() {
  if (!state_->is_inert()) state_->export_collections();
}

void Recorder::put_document(std::string_view name, std::string_view content) {
  if (!state_->is_inert() && !state_->options.dry_run) state_->storage->put(name, content);
}

bool Recorder::flush(std::int64_t timeout_ns) noexcept {
  if (state_->is_inert() || state_->writer == nullptr) return true;
  return state_->writer->flush(timeout_ns);
}

void Recorder::close() noexcept { state_->close(); }
bool Recorder::is_closed() const { return state_->is_closed; }

TraceWriterCounters Recorder::counters() const {
  if (state_->fork_guard.is_forked_child()) return {};
  return state_->counters();
}

std::uint64_t Recorder::fault_count() const { return state_->faults; }

const std::string& Recorder::run_id() const { return state_->run_id; }
Storage& Recorder::storage() { return *state_->storage; }

}  // namespace tensortap
