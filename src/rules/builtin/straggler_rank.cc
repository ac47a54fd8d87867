// StragglerRank: one worker that is slower than the others, or all of them standing still.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "StragglerRank";

constexpr std::string_view kDoc =
    R"(In a run with several workers it takes the median of each worker's own time over `window`
points and fires when that of one worker exceeds `ratio` times the median over the workers in
`persist` windows in a row.

Own time is a scalar that `time_regex` matches: the time until the first exchange, as
`compute_time` saved by the script. Since an exchange makes all workers wait for the slowest, the
whole `step_time` of the hook tells little; it is taken for a worker that has nothing else.

While a run is followed, it also fires when no step has come from any worker for `hang_seconds` or
10 times the longest of the last 100 steps, whichever is more: a collective hangs. Raise it where
evaluations or checkpoints take longer. StalledTrainingRule is the form for a single process.

Source: PyTorch's Flight Recorder and NVIDIA's resiliency extension; the ratio is that of a public
alert script for Weights & Biases.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"time_regex", ParameterType::kString, "^(scalar/)?(.*/)?(own|compute)_time$",
     "Pattern of names of a worker's own time, in seconds."},
    {"window", ParameterType::kInt, "30", "Points of a window.", 2},
    {"ratio", ParameterType::kFloat, "1.25", "Ratio to the median over workers that fires.", 1.0},
    {"persist", ParameterType::kInt, "3", "Windows in a row.", 1},
    {"hang_seconds", ParameterType::kFloat, "60", "Silence that is a hang, in seconds; 0: never.",
     0.0},
}};

constexpr std::array<std::string_view, 1> kCollections = {"timings"};

constexpr std::array<std::string_view, 4> kCauses = {
    "a slower or throttled device, or another job on that machine",
    "batches that are larger or longer on one worker",
    "a slow data path on one worker",
    "a collective that one worker does not enter (a condition, uneven batches)",
};

constexpr double kHangRatio = 10.0;

class StragglerRank : public TensorRule {
 public:
  explicit StragglerRank(const Parameters& parameters)
      : TensorRule({.regexes = {parameters.get_string("time_regex"), "^step_time$"}}),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        ratio_(parameters.get_float("ratio")),
        persist_(parameters.get_int("persist")),
        hang_seconds_(parameters.get_float("hang_seconds")),
        own_time_(parameters.get_string("time_regex")) {}

  void pass_time(std::int64_t now_ns, std::vector<Finding>& findings) override {
    if (hang_seconds_ <= 0.0 || worker_count_ < 2 || last_ns_ == 0) return;
    const double longest = durations_.size() > 0 ? durations_.maximum() : 0.0;
    const double limit = std::max(hang_seconds_, kHangRatio * longest);
    const double silence = 1e-9 * static_cast<double>(now_ns - last_ns_);
    if (!hang_.tell(silence > limit, 1, true)) return;
    Finding& finding = findings.emplace_back(finding_at(last_step_, "", ""));
    finding.severity = Severity::kCritical;
    finding.statistic = "silence";
    finding.observed = silence;
    finding.threshold = limit;
    finding.message = fmt::format(
        "None of {} workers has completed a step for {:.0f} s since step {}: a collective may "
        "hang.",
        worker_count_, silence, last_step_.step);
  }

  std::string missing_input() const override {
    return worker_count_ > 1 ? "" : "it needs several workers, and the run has one";
  }

 protected:
  void begin(const StepView& step) override {
    last_step_ = step;
    last_step_.workers = {};
    worker_count_ = std::max(worker_count_, step.workers.size());
    for (const WorkerStep& worker : step.workers) {
      const StepInfo& info = worker.record->info;
      const std::int64_t end = info.wall_time_ns + info.duration_ns;
      if (last_ns_ > 0 && end > last_ns_) {
        durations_.push(1e-9 * static_cast<double>(end - last_ns_));
      }
      last_ns_ = std::max(last_ns_, end);
    }
    hang_ = Persistence();
  }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (times_.size() <= worker.worker_index) times_.resize(worker.worker_index + 1);
    Times& times = times_[worker.worker_index];
    const bool is_whole_step = tensor_name(worker, row) == "step_time";
    if (is_whole_step && own_time_.is_known(worker)) return;
    if (!std::isfinite(row.statistics.mean)) return;
    if (times.name.empty()) {
      times.name = tensor_name(worker, row);
      times.worker = worker.worker;
      times.window = RollingWindow(window_);
    }
    times.window.push(row.statistics.mean);
    ++times.points;
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (times_.size() < 2) return;
    const auto has_window = [&](const Times& times) { return times.points >= window_; };
    if (!std::all_of(times_.begin(), times_.end(), has_window)) return;
    std::vector<double> medians;
    for (Times& times : times_) {
      times.points = 0;
      medians.push_back(times.window.median());
    }
    std::nth_element(medians.begin(), medians.begin() + std::ssize(medians) / 2, medians.end());
    double usual = medians[medians.size() / 2];
    if (medians.size() % 2 == 0) {
      usual = 0.5 * (usual +
                     *std::max_element(medians.begin(), medians.begin() + std::ssize(medians) / 2));
    }
    for (Times& times : times_) judge(step, times, usual, findings);
  }

 private:
  struct Times {
    std::string name;
    std::string worker;
    RollingWindow window;
    std::size_t points = 0;  // since the last judgement
    Persistence slow;
  };

  void judge(const StepView& step, Times& times, double usual,
             std::vector<Finding>* findings) const {
    const double median = times.window.median();
    const bool is_slow = median > ratio_ * usual * (1.0 + 1e-9);
    if (!times.slow.tell(is_slow, persist_, findings != nullptr)) return;
    Finding& finding = findings->emplace_back(finding_at(step, times.name, times.worker));
    finding.statistic = "median";
    finding.observed = median;
    finding.threshold = ratio_ * usual;
    finding.message = fmt::format(
        "{} of {} has a median of {:.3g} s up to step {}, {:.2f} times that of all workers, in {} "
        "windows of {} points.",
        times.name, times.worker, median, step.step, median / usual, persist_, window_);
  }

  const std::size_t window_;
  const double ratio_;
  const std::int64_t persist_;
  const double hang_seconds_;
  NamedScalar own_time_;
  std::vector<Times> times_;  // [worker_index]
  std::size_t worker_count_ = 0;
  StepView last_step_;
  std::int64_t last_ns_ = 0;
  RollingWindow durations_{100};  // seconds
  Persistence hang_;
};

}  // namespace

const RuleDescriptor& straggler_rank_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "One worker that is slower than the others, or all of them standing still.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kSystem,
      .advice = {"All workers wait for the slowest one at every exchange: one slow device slows "
                 "down the whole run.",
                 kCauses,
                 "Compare clocks, temperature, other processes and batch sizes of the named worker "
                 "with the others'."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<StragglerRank>,
  };
  return kDescriptor;
}

}  // namespace tensortap
