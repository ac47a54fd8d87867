#include "trial/trial.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/regex.h"
#include "base/text.h"
#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trial/scalar_value.h"
#include "trial/trial_state.h"

namespace tensortap {
namespace {

using trial::Axis;
using trial::kNoOrdinal;

constexpr std::chrono::milliseconds kPollInterval(20);

void validate(const TrialOptions& options) {
  const bool is_negative = (options.first_step && *options.first_step < 0) ||
                           (options.last_step && *options.last_step < 0);
  const bool is_empty =
      options.first_step && options.last_step && *options.first_step >= *options.last_step;
  if (!is_negative && !is_empty) return;
  const auto text = [](const std::optional<std::int64_t>& step) {
    return step ? std::to_string(*step) : std::string();
  };
  throw Error(ErrorCode::kInvalidArgument,
              "a range of steps is FIRST:LAST with 0 <= FIRST < LAST, not '" +
                  text(options.first_step) + ":" + text(options.last_step) + "'");
}

std::string step_text(std::int64_t step, Mode mode) {
  std::string text = "step " + std::to_string(step);
  if (mode != Mode::kGlobal) text += " of mode " + std::string(mode_name(mode));
  return text;
}

// Merges columns of several workers, each ascending: at a step that more than one has, the first
// worker's value stands.
Column merge_columns(std::vector<Column> parts) {
  if (parts.empty()) return {};
  Column merged = std::move(parts.front());
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const Column left = std::exchange(merged, {});
    const Column& right = parts[p];
    std::size_t i = 0;
    std::size_t k = 0;
    while (i < left.steps.size() || k < right.steps.size()) {
      const bool take_left =
          k == right.steps.size() || (i < left.steps.size() && left.steps[i] <= right.steps[k]);
      const Column& from = take_left ? left : right;
      const std::size_t at = take_left ? i : k;
      if (take_left && k < right.steps.size() && left.steps[i] == right.steps[k]) ++k;
      (take_left ? i : k) += 1;
      merged.steps.push_back(from.steps[at]);
      merged.values.push_back(from.values[at]);
    }
  }
  return merged;
}

}  // namespace

std::shared_ptr<Trial> Trial::open(std::string_view uri, const TrialOptions& options) {
  validate(options);
  return std::make_shared<Trial>(open_trace(open_storage(uri)), options);
}

Trial::Trial(std::shared_ptr<TraceSource> source, const TrialOptions& options) {
  validate(options);
  state_ = std::make_unique<State>(std::move(source), options);
  state_->source->refresh();
  state_->update();
}

Trial::~Trial() = default;

const std::string& Trial::uri() const { return state_->source->uri(); }
TraceSource& Trial::source() { return *state_->source; }

bool Trial::refresh() {
  if (!state_->source->refresh()) return false;
  state_->update();
  return true;
}

bool Trial::has_ended() const { return state_->index.has_ended(); }

std::vector<std::string> Trial::tensor_names(const TensorFilter& filter) const {
  State& state = *state_;
  std::vector<Regex> regexes;
  for (const std::string& pattern : filter.regexes) regexes.emplace_back(pattern);
  std::vector<std::string_view> at_step;
  if (filter.step) {
    const std::optional<std::size_t> index = state.axis(filter.mode).find(*filter.step);
    if (!index) return {};
    at_step = state.names_at(filter.mode, *index);
  } else {
    state.mark_present(filter.mode);
  }
  std::vector<std::string> names;
  for (auto& [name, tensor] : state.tensors) {
    const bool is_match =
        regexes.empty() || std::any_of(regexes.begin(), regexes.end(),
                                       [&name = name](const Regex& r) { return r.search(name); });
    if (!is_match) continue;
    if (filter.collection && !state.is_member(name, tensor, *filter.collection)) continue;
    const bool is_there =
        filter.step ? std::binary_search(at_step.begin(), at_step.end(), std::string_view(name))
                    : state.is_present(tensor, filter.mode);
    if (is_there) names.push_back(name);
  }
  return names;
}

bool Trial::has_tensor(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found != state_->tensors.end() && state_->is_present(found->second, Mode::kGlobal);
}

std::vector<std::string> Trial::workers() const {
  std::vector<std::string> names;
  for (const WorkerSource* worker : state_->sources) names.push_back(worker->name());
  return names;
}

std::vector<Mode> Trial::modes() const {
  std::vector<Mode> modes;
  for (const Mode mode : {Mode::kTrain, Mode::kEval, Mode::kPredict}) {
    if (!state_->axis(mode).keys.empty()) modes.push_back(mode);
  }
  if (state_->index.has_global_mode()) modes.push_back(Mode::kGlobal);
  return modes;
}

std::vector<std::int64_t> Trial::steps(Mode mode, bool show_incomplete) const {
  const Axis& axis = state_->axis(mode);
  const std::size_t count = show_incomplete ? axis.keys.size() : axis.complete_count();
  return {axis.keys.begin(), axis.keys.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::optional<StepInfo> Trial::step_info(std::int64_t global_step) const {
  const Axis& axis = state_->axis(Mode::kGlobal);
  const std::optional<std::size_t> index = axis.find(global_step);
  if (!index) return std::nullopt;
  for (std::size_t w = 0; w < state_->sources.size(); ++w) {
    const std::uint32_t ordinal = axis.ordinals[w][*index];
    if (ordinal != kNoOrdinal) return state_->sources[w]->steps()[ordinal];
  }
  return std::nullopt;
}

std::optional<std::int64_t> Trial::global_step(Mode mode, std::int64_t mode_step) const {
  const Axis& axis = state_->axis(mode);
  const std::optional<std::size_t> index = axis.find(mode_step);
  if (!index) return std::nullopt;
  for (std::size_t w = 0; w < state_->sources.size(); ++w) {
    const std::uint32_t ordinal = axis.ordinals[w][*index];
    if (ordinal != kNoOrdinal) return state_->sources[w]->steps()[ordinal].step;
  }
  return std::nullopt;
}

const CollectionSet& Trial::collections() const { return state_->collections; }

std::vector<std::int64_t> Trial::tensor_steps(std::string_view name, Mode mode) const {
  const State::Tensor& tensor = state_->tensor(name);
  const std::int64_t complete_key = state_->axis(mode).complete_key;
  std::vector<std::int64_t> steps;
  std::size_t worker_count = 0;
  for (std::size_t w = 0; w < state_->sources.size(); ++w) {
    if (tensor.ids[w] == State::kNoTensor) continue;
    ++worker_count;
    for (const std::uint32_t ordinal :
         state_->live_ordinals(w, static_cast<TensorId>(tensor.ids[w]), mode)) {
      const std::int64_t key = state_->key_of(w, ordinal, mode);
      if (key <= complete_key) steps.push_back(key);
    }
  }
  if (worker_count > 1) {
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  }
  return steps;
}

std::vector<std::string> Trial::tensor_workers(std::string_view name, std::int64_t step,
                                               Mode mode) const {
  std::vector<std::string> names;
  state_->first_of(state_->tensor(name), step, mode, {},
                   [&](std::size_t w, TensorId id, std::uint32_t ordinal) {
                     const WorkerSource& worker = *state_->sources[w];
                     if (worker.read_row(id, ordinal) || worker.read_text(id, ordinal) ||
                         worker.read_raw(id, ordinal)) {
                       names.push_back(worker.name());
                     }
                     return std::optional<bool>();  // go on to the next worker
                   });
  return names;
}

std::optional<StatisticsRow> Trial::row(std::string_view name, std::int64_t step, Mode mode,
                                        std::string_view worker) const {
  return state_->first_of(state_->tensor(name), step, mode, worker,
                          [&](std::size_t w, TensorId id, std::uint32_t ordinal) {
                            return state_->sources[w]->read_row(id, ordinal);
                          });
}

std::optional<Layout> Trial::layout(std::string_view name, std::int64_t step, Mode mode,
                                    std::string_view worker) const {
  return state_->first_of(
      state_->tensor(name), step, mode, worker,
      [&](std::size_t w, TensorId id, std::uint32_t ordinal) -> std::optional<Layout> {
        const std::vector<Layout>& layouts = state_->sources[w]->dictionary().layouts;
        if (const auto row = state_->sources[w]->read_row(id, ordinal)) return layouts[row->layout];
        if (const auto raw = state_->sources[w]->read_raw(id, ordinal)) return layouts[raw->layout];
        return std::nullopt;
      });
}

std::optional<Trial::Value> Trial::value(std::string_view name, std::int64_t step, Mode mode,
                                         std::string_view worker) const {
  return state_->first_of(
      state_->tensor(name), step, mode, worker,
      [&](std::size_t w, TensorId id, std::uint32_t ordinal) -> std::optional<Value> {
        const std::vector<Layout>& layouts = state_->sources[w]->dictionary().layouts;
        if (auto raw = state_->sources[w]->read_raw(id, ordinal)) {
          return Value{layouts[raw->layout], std::move(raw->data)};
        }
        const std::optional<StatisticsRow> row = state_->sources[w]->read_row(id, ordinal);
        const std::optional<double> number = row ? single_value(*row) : std::nullopt;
        if (!number || dtype_is_complex(layouts[row->layout].dtype)) return std::nullopt;
        Value value{layouts[row->layout], {}};
        value.data = state_->buffers.acquire(dtype_size_bytes(value.layout.dtype));
        trial::encode_scalar(*number, value.layout.dtype, value.data.data.get());
        return value;
      });
}

std::optional<std::string> Trial::text(std::string_view name, std::int64_t step, Mode mode,
                                       std::string_view worker) const {
  return state_->first_of(state_->tensor(name), step, mode, worker,
                          [&](std::size_t w, TensorId id, std::uint32_t ordinal) {
                            return state_->sources[w]->read_text(id, ordinal);
                          });
}

Column Trial::column(std::string_view name, StatisticId statistic, Mode mode,
                     std::string_view worker) const {
  const State::Tensor& tensor = state_->tensor(name);
  const auto [first_worker, last_worker] = state_->worker_range(worker);
  const std::int64_t complete_key = state_->axis(mode).complete_key;
  std::vector<Column> parts;
  for (std::size_t w = first_worker; w < last_worker; ++w) {
    if (tensor.ids[w] == State::kNoTensor) continue;
    SourceColumn read;
    const auto [first, last] = state_->index.ordinal_range(w, mode);
    state_->sources[w]->read_column(static_cast<TensorId>(tensor.ids[w]), statistic, first, last,
                                    read);
    Column column;
    column.steps.reserve(read.ordinals.size());
    column.values.reserve(read.ordinals.size());
    for (std::size_t i = 0; i < read.ordinals.size(); ++i) {
      if (!state_->index.is_live(w, read.ordinals[i], mode)) continue;
      const std::int64_t key = state_->key_of(w, read.ordinals[i], mode);
      if (key > complete_key) break;
      column.steps.push_back(key);
      column.values.push_back(read.values[i]);
    }
    parts.push_back(std::move(column));
  }
  return merge_columns(std::move(parts));
}

StepState Trial::has_passed_step(std::int64_t step, Mode mode) const {
  const Axis& axis = state_->axis(mode);
  const auto at = std::lower_bound(axis.keys.begin(), axis.keys.end(), step);
  if (at == axis.keys.end()) {
    const bool is_before_range =
        mode == Mode::kGlobal && state_->first_step && step < *state_->first_step;
    return is_before_range || has_ended() ? StepState::kUnavailable : StepState::kNotYetAvailable;
  }
  if (*at > axis.complete_key) return StepState::kNotYetAvailable;
  return *at == step ? StepState::kAvailable : StepState::kUnavailable;
}

std::optional<std::int64_t> Trial::wait_for_steps(std::span<const std::int64_t> steps, Mode mode,
                                                  std::optional<std::int64_t> timeout_ns,
                                                  const std::function<bool()>& should_stop) {
  const std::int64_t start_ns = monotonic_time_ns();
  for (const std::int64_t step : steps) {
    while (true) {
      const StepState step_state = has_passed_step(step, mode);
      if (step_state == StepState::kAvailable) break;
      if (step_state == StepState::kUnavailable) return step;
      if (refresh()) continue;
      if (should_stop && should_stop()) {
        throw Error(ErrorCode::kUnavailable,
                    "stopped while waiting for " + step_text(step, mode) + ": " + uri());
      }
      if (timeout_ns && monotonic_time_ns() - start_ns >= *timeout_ns) {
        throw Error(ErrorCode::kUnavailable,
                    "timed out while waiting for " + step_text(step, mode) + ": " + uri());
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  return std::nullopt;
}

std::vector<std::shared_ptr<const StepRecord>> Trial::records(std::int64_t global_step) const {
  std::vector<std::shared_ptr<const StepRecord>> records(state_->sources.size());
  const Axis& axis = state_->axis(Mode::kGlobal);
  const std::optional<std::size_t> index = axis.find(global_step);
  if (!index) return records;
  for (std::size_t w = 0; w < records.size(); ++w) {
    const std::uint32_t ordinal = axis.ordinals[w][*index];
    if (ordinal != kNoOrdinal) records[w] = state_->sources[w]->read_step(ordinal);
  }
  return records;
}

}  // namespace tensortap
