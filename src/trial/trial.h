// Questions to a run: which tensors, steps, modes, workers; values and statistics at a step; one
// statistic over all steps as a column. Opens indexes, never data; refresh() reads only what is
// new. Serves a run on disk and a live process alike (TraceSource). Steps are smdebug's: in mode
// GLOBAL a step is the global step, otherwise the step within the mode. When a run was resumed over
// steps it already had, the later session's steps stand for those of the earlier one. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/collection.h"
#include "trace/trace_source.h"

namespace tensortap {

enum class StepState { kUnavailable = 0, kAvailable = 1, kNotYetAvailable = 2 };

struct TensorFilter {
  std::vector<std::string> regexes = {};  // any of them; empty = no restriction
  std::optional<std::string> collection = {};
  std::optional<std::int64_t> step = {};  // of `mode`
  Mode mode = Mode::kGlobal;              // GLOBAL = all modes
};

// One statistic of one tensor over its steps, ascending. `steps` are of the mode that was asked
// for.
struct Column {
  std::vector<std::int64_t> steps;
  std::vector<double> values;
};

struct TrialOptions {
  // Global steps [first, last) outside which the trial sees nothing.
  std::optional<std::int64_t> first_step = {};
  std::optional<std::int64_t> last_step = {};
};

class Trial {
 public:
  // Throws Error(kNotFound) with the path when no run is there.
  static std::shared_ptr<Trial> open(std::string_view uri, const TrialOptions& options = {});
  explicit Trial(std::shared_ptr<TraceSource> source, const TrialOptions& options = {});
  ~Trial();

  const std::string& uri() const;
  TraceSource& source();
  bool refresh();          // true when there is anything new
  bool has_ended() const;  // every worker has said so

  std::vector<std::string> tensor_names(const TensorFilter& filter = {}) const;  // sorted
  bool has_tensor(std::string_view name) const;
  std::vector<std::string> workers() const;
  std::vector<Mode> modes() const;  // that occurred, without GLOBAL unless it was used
  std::vector<std::int64_t> steps(Mode mode = Mode::kGlobal, bool show_incomplete = false) const;
  std::optional<StepInfo> step_info(std::int64_t global_step) const;
  std::optional<std::int64_t> global_step(Mode mode, std::int64_t mode_step) const;
  const CollectionSet& collections() const;

  // Throws Error(kNotFound) for an unknown tensor, with near names.
  std::vector<std::int64_t> tensor_steps(std::string_view name, Mode mode = Mode::kGlobal) const;
  std::vector<std::string> tensor_workers(std::string_view name, std::int64_t step,
                                          Mode mode = Mode::kGlobal) const;
  // Nothing when the tensor has no row at that step (of that worker; "" = the first that has one).
  std::optional<StatisticsRow> row(std::string_view name, std::int64_t step,
                                   Mode mode = Mode::kGlobal, std::string_view worker = {}) const;
  std::optional<Layout> layout(std::string_view name, std::int64_t step, Mode mode = Mode::kGlobal,
                               std::string_view worker = {}) const;
  // The raw value: saved as such, or rebuilt from the statistics of a one-element tensor.
  struct Value {
    Layout layout;
    BufferPool::Buffer data;  // C order
  };
  std::optional<Value> value(std::string_view name, std::int64_t step, Mode mode = Mode::kGlobal,
                             std::string_view worker = {}) const;
  std::optional<std::string> text(std::string_view name, std::int64_t step,
                                  Mode mode = Mode::kGlobal, std::string_view worker = {}) const;
  Column column(std::string_view name, StatisticId statistic, Mode mode = Mode::kGlobal,
                std::string_view worker = {}) const;

  StepState has_passed_step(std::int64_t step, Mode mode = Mode::kGlobal) const;
  // Refreshes until every step is available or can no longer come. Returns the first that cannot
  // (nothing = all there); a timeout in ns (nothing = for ever) gives Error(kUnavailable).
  // `should_stop` is asked between polls (signals).
  std::optional<std::int64_t> wait_for_steps(std::span<const std::int64_t> steps, Mode mode,
                                             std::optional<std::int64_t> timeout_ns,
                                             const std::function<bool()>& should_stop = {});

  // For rules: the complete global steps, ascending, and for one of them every worker's record
  // (null where a worker has none), in the order of workers().
  std::vector<std::int64_t> complete_steps() const { return steps(Mode::kGlobal); }
  std::vector<std::shared_ptr<const StepRecord>> records(std::int64_t global_step) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
