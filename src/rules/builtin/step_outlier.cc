// StepOutlier: some steps take much longer than the others.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/shared_parameters.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "StepOutlier";

constexpr std::string_view kDoc =
    R"(Keeps the durations of the steps of each mode and fires when more than `n_outliers` of them are
longer than their mean plus `stddev` standard deviations, once there are more than 100. Told once a
mode and worker, with the numbers of the longest steps. The first `warmup` steps of a mode are left
out: they compile and fill caches.

The duration is the scalar `step_time` where the hook records it (seconds of the step before, from
its begin to the next one's, so that what the script does between steps counts too), else how long
the recorded step was open. Only steps that are saved are seen.

The default is the documented one, with two weaknesses: many outliers widen the standard deviation
until none is found, which `method=mad` (median plus `stddev` times 1.4826 times the median absolute
deviation, over the newest 4,096) does not suffer from; and in a long training a few slow steps in a
thousand, which every machine has, add up to `n_outliers`, which `min_ratio=2` (an outlier is also
at least twice the mean or median) keeps quiet.

Source: SageMaker Debugger's rule of that name; steps that are too short are no outliers.)";

constexpr std::array<std::string_view, 2> kMethods = {"std", "mad"};

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"stddev", ParameterType::kFloat, "3", "Standard deviations above the mean.", 0, 1e308, true},
    {"mode", ParameterType::kString, "", "Only steps of this mode: TRAIN, EVAL, PREDICT, GLOBAL."},
    {"n_outliers", ParameterType::kInt, "10", "Outliers that are tolerated.", 0},
    {"method", ParameterType::kString, "std", "std or mad."},
    {"min_ratio", ParameterType::kFloat, "1", "An outlier's least ratio to the mean or median.", 0},
    {"warmup", ParameterType::kInt, "10", "Steps of a mode that are left out at its start.", 0},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "checkpoints or evaluations within the training loop",
    "Python's garbage collector, or memory that is allocated anew for inputs of changing size",
    "a data loader that runs dry now and then",
    "other programs on the same machine",
};

constexpr std::size_t kMinDurations = 100;
constexpr std::size_t kMaxKept = 4096;
constexpr std::size_t kToldSteps = 10;
constexpr double kMadToDeviation = 1.4826;

struct TimedStep {
  double seconds = 0.0;
  std::int64_t step = 0;
};
bool is_longer(const TimedStep& a, const TimedStep& b) { return a.seconds > b.seconds; }

// The durations of one worker's steps of one mode. Which of them are outliers changes with every
// step, but whether there are more than n follows from the n + 1 longest.
struct Durations {
  void push(const TimedStep& timed, std::size_t longest_count) {
    ++count;
    const double delta = timed.seconds - mean;
    mean += delta / static_cast<double>(count);
    squares += delta * (timed.seconds - mean);
    longest.push_back(timed);
    std::push_heap(longest.begin(), longest.end(), is_longer);
    if (longest.size() <= longest_count) return;
    std::pop_heap(longest.begin(), longest.end(), is_longer);
    longest.pop_back();
  }
  double deviation() const { return std::sqrt(squares / static_cast<double>(count)); }

  std::int64_t left_out = 0;
  std::uint64_t count = 0;
  double mean = 0.0;
  double squares = 0.0;
  std::vector<TimedStep> longest;  // a heap with the shortest of them in front
  RollingWindow newest{kMaxKept};  // with mad
  bool is_told = false;
};

std::optional<Mode> parse_mode(const std::string& text) {
  if (text.empty()) return std::nullopt;
  // SageMaker's names of step events end in the mode: "Step:ModeKeys.TRAIN".
  const std::size_t dot = text.find_last_of(".:");
  const auto mode = mode_from_name(dot == std::string::npos ? text : text.substr(dot + 1));
  if (!mode) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rule {}: parameter 'mode' must be TRAIN, EVAL, PREDICT or GLOBAL, not "
                            "'{}'",
                            kName, text));
  }
  return mode;
}

class StepOutlier : public Rule {
 public:
  explicit StepOutlier(const Parameters& parameters)
      : deviations_(parameters.get_float("stddev")),
        mode_(parse_mode(parameters.get_string("mode"))),
        outlier_count_(static_cast<std::size_t>(parameters.get_int("n_outliers"))),
        is_mad_(choice_of(kName, parameters, "method", kMethods) == 1),
        min_ratio_(parameters.get_float("min_ratio")),
        warmup_(parameters.get_int("warmup")) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    ++coverage_.checked_steps;
    for (const WorkerStep& worker : step.workers) see(step, worker, &findings);
  }
  void observe(const StepView& step) override {
    for (const WorkerStep& worker : step.workers) see(step, worker, nullptr);
  }
  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "steps of the mode"; }

 private:
  struct State {
    std::map<Mode, Durations> modes;
    bool has_step_time = false;
    std::optional<StepInfo> last;
  };

  void see(const StepView& step, const WorkerStep& worker, std::vector<Finding>* findings) {
    State& state = states_.at(worker);
    const StepInfo& info = worker.record->info;
    StepInfo timed = info;
    double seconds = static_cast<double>(info.duration_ns) * 1e-9;
    if (const auto value = step_time_.value(worker)) {
      if (!state.has_step_time) state.modes.clear();  // what was measured differently
      state.has_step_time = true;
      seconds = *value;
      // It is about the step before, which may have been of another mode.
      const bool is_known = state.last && state.last->step == info.step - 1;
      if (is_known) timed = *state.last;
      timed.step = info.step - 1;
    } else if (state.has_step_time) {
      state.last = info;
      return;
    }
    state.last = info;
    if (mode_ && timed.mode != *mode_) return;
    coverage_.matched_tensors = 1;
    ++coverage_.checked_tensor_steps;
    Durations& durations = state.modes[timed.mode];
    if (durations.left_out < warmup_) {
      ++durations.left_out;
      return;
    }
    durations.push({seconds, timed.step}, outlier_count_ + 1);
    if (is_mad_) durations.newest.push(seconds);
    if (findings != nullptr) judge(step, worker, timed.mode, durations, *findings);
  }

  void judge(const StepView& step, const WorkerStep& worker, Mode mode, Durations& durations,
             std::vector<Finding>& findings) const {
    if (durations.is_told || durations.count <= kMinDurations) return;
    if (durations.longest.size() <= outlier_count_) return;
    const double middle = is_mad_ ? durations.newest.median() : durations.mean;
    const double deviation =
        is_mad_ ? kMadToDeviation * durations.newest.mad() : durations.deviation();
    const double limit = std::max(middle + deviations_ * deviation, middle * min_ratio_);
    if (!(durations.longest.front().seconds > limit)) return;
    durations.is_told = true;
    Finding finding = finding_at(step, "", worker.worker);
    finding.statistic = "longest_step_seconds";
    std::vector<TimedStep> longest = durations.longest;
    std::sort(longest.begin(), longest.end(), is_longer);
    finding.observed = longest.front().seconds;
    finding.threshold = limit;
    longest.resize(std::min(longest.size(), kToldSteps));
    std::vector<std::string> steps;
    for (const TimedStep& one : longest) {
      steps.push_back(fmt::format("{} ({:.3g} s)", one.step, one.seconds));
    }
    finding.message = fmt::format(
        "More than {} of {} {} steps took longer than {:.3g} s, where the {} is {:.3g} s; the "
        "longest: {}.",
        outlier_count_, durations.count, mode_name(mode), limit, is_mad_ ? "median" : "mean",
        middle, join(steps, ", "));
    findings.push_back(std::move(finding));
  }

  const double deviations_;
  const std::optional<Mode> mode_;
  const std::size_t outlier_count_;
  const bool is_mad_;
  const double min_ratio_;
  const std::int64_t warmup_;
  NamedScalar step_time_{"^step_time$"};
  PerWorker<State> states_;
  Coverage coverage_;
};

}  // namespace

const RuleDescriptor& step_outlier_rule() {
  static constexpr std::array<std::string_view, 1> kCollections = {"timings"};
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Some steps take much longer than the others.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"Stalls cost time at every occurrence, and with several workers all wait for the "
                 "slowest.",
                 kCauses,
                 "Look at what the named steps have in common: a period tells of checkpoints, logs "
                 "or the garbage collector."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<StepOutlier>,
  };
  return kDescriptor;
}

}  // namespace tensortap
