// Dataloader: the number of loader processes does not fit the machine.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "Dataloader";

constexpr std::string_view kDoc =
    R"(Counts the training's worker processes in each second and takes the median over the last 1000
seconds in which there were any. Fires when it is below `min_threshold` or above `max_threshold`
percent of the number of cores, once more than `patience` such seconds were seen; told once until it
is over. The median is cut to a whole number.

A training without worker processes has a finding of its own: fires when, after more than `patience`
seconds, the training process has spent more than `data_share` of the time of its steps waiting for
data (the scalars `data_time` and `step_time`; at least 20 steps).

The default is the documented one, which blames 2 workers on a machine with 64 cores even when the
data comes fast enough; `only_if_slow=true` demands `data_share` in every case.

Looks at `system/worker_processes` (children that run the training's own program) and
`system/cpu_utilization` (how many cores there are).

Source: a rule of that name in SageMaker's rule configurations; the finding without workers is ours.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"min_threshold", ParameterType::kFloat, "70", "Workers in percent of the cores.", 0, 1e308,
     true},
    {"max_threshold", ParameterType::kFloat, "200", "Workers in percent of the cores.", 0, 1e308,
     true},
    {"patience", ParameterType::kInt, "10", "Seconds of data before anything is judged.", 0},
    {"data_share", ParameterType::kFloat, "0.5",
     "Share of a step's time spent waiting for data that is too much.", 0, 1},
    {"only_if_slow", ParameterType::kBool, "false",
     "Fire only when the training waits for data more than data_share."},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 3> kCauses = {
    "num_workers left at its default",
    "a number of workers that was chosen for another machine",
    "several training processes that share the cores",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

constexpr std::size_t kMaxSeconds = 1000;
constexpr std::uint64_t kMinSteps = 20;

class Dataloader : public SystemRule {
 public:
  explicit Dataloader(const Parameters& parameters)
      : SystemRule({Metric::kWorkerProcesses, Metric::kCpuUtilization}),
        min_percent_(parameters.get_float("min_threshold")),
        max_percent_(parameters.get_float("max_threshold")),
        patience_(static_cast<std::size_t>(parameters.get_int("patience"))),
        data_share_(parameters.get_float("data_share")),
        only_if_slow_(parameters.get_bool("only_if_slow")) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    State& state = states_.at(point.worker);
    state.cores = std::max(state.cores, sample.of(Metric::kCpuUtilization).size());
    const auto workers = sample.of(Metric::kWorkerProcesses);
    if (workers.empty() || std::isnan(workers[0]) || std::isnan(sample.time_s)) return;
    const double second = std::floor(sample.time_s);
    std::deque<Second>& seconds = workers[0] > 0.0 ? state.busy : state.idle;
    if (!seconds.empty() && seconds.back().second == second) {
      seconds.back().workers = std::max(seconds.back().workers, workers[0]);
      return;
    }
    seconds.push_back({second, workers[0]});
    if (seconds.size() > kMaxSeconds) seconds.pop_front();
  }

  void judge(const MachinePoint& point) override {
    State& state = states_.at(point.worker);
    if (state.busy.size() > patience_) judge_count(point, state);
    if (state.busy.empty() && state.idle.size() > patience_) judge_none(point, state);
  }

  void end(const StepView& step, std::vector<Finding>*) override {
    for (const WorkerStep& worker : step.workers) {
      State& state = states_.at(worker);
      const auto step_time = step_time_.value(worker);
      const auto data_time = data_time_.value(worker);
      if (!step_time || !data_time) continue;
      state.step_seconds += *step_time;
      state.data_seconds += *data_time;
      ++state.steps;
    }
  }

 private:
  struct Second {
    double second = 0.0;
    double workers = 0.0;
  };
  struct State {
    std::size_t cores = 0;
    std::deque<Second> busy;  // seconds with workers
    std::deque<Second> idle;  // and without
    double step_seconds = 0.0;
    double data_seconds = 0.0;
    std::uint64_t steps = 0;
    Persistence count_is_wrong;
    Persistence has_none;

    double share() const {
      return steps >= kMinSteps && step_seconds > 0.0 ? data_seconds / step_seconds : 0.0;
    }
  };

  void judge_count(const MachinePoint& point, State& state) const {
    RollingWindow counts(state.busy.size());
    for (const Second& one : state.busy) counts.push(one.workers);
    const double median = std::floor(counts.median());
    const double cores = static_cast<double>(state.cores);
    const double least = cores * min_percent_ / 100.0;
    const double most = cores * max_percent_ / 100.0;
    const bool is_slow = !only_if_slow_ || state.share() > data_share_;
    const bool fires = is_slow && (median < least || median > most);
    if (!state.count_is_wrong.tell(fires, 1, point.is_judged())) return;
    point.add(Metric::kWorkerProcesses, "median", median, median < least ? least : most,
              fmt::format("{} worker processes on {} cores are too {}; try num_workers={}.", median,
                          state.cores, median < least ? "few" : "many", state.cores));
  }

  void judge_none(const MachinePoint& point, State& state) const {
    const double share = state.share();
    if (!state.has_none.tell(share > data_share_, 1, point.is_judged())) return;
    point.add(Metric::kWorkerProcesses, "data_share", share, data_share_,
              fmt::format("The training loads its data itself and waits for it {:.0f} % of the "
                          "time; try num_workers={}.",
                          100.0 * share, std::max<std::size_t>(state.cores, 1)));
  }

  const double min_percent_;
  const double max_percent_;
  const std::size_t patience_;
  const double data_share_;
  const bool only_if_slow_;
  NamedScalar step_time_{"^step_time$"};
  NamedScalar data_time_{"^data_time$"};
  PerWorker<State> states_;
};

}  // namespace

const RuleDescriptor& dataloader_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The number of data loader processes does not fit the machine.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"Too few workers let the training wait for data; too many get into each other's "
                 "way.",
                 kCauses,
                 "Set the data loader's num_workers to about the number of cores and compare the "
                 "time of a step."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<Dataloader>,
  };
  return kDescriptor;
}

}  // namespace tensortap
