// OverallFrameworkMetrics: where the time of the training went.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "OverallFrameworkMetrics";

constexpr std::string_view kDoc =
    R"(Never fires. Its status ends with a summary of where the time went, from the begin of the first
recorded step to the end of the last: the share of the steps of each mode, of everything between the
steps (`other`; modes below 2 % are counted there), and, where the hook records `step_time` and
`data_time`, the share of a step's time that the training waited for data. Several workers are added
up.

When not every step is saved, a mode's time is that of its saved steps, scaled to the number of
steps that its counter tells.

Source: SageMaker Debugger's rule of that name, as far as it is recorded here: there are no shares
of forward and backward passes or of operators.)";

constexpr std::array<std::string_view, 1> kCauses = {
    "the training itself: it tells, it does not judge"};

constexpr std::array<ParameterDescriptor, 1> kParameters = {kScanIntervalParameter};

constexpr double kMinShare = 0.02;

struct ModeTime {
  double seconds = 0.0;
  std::uint64_t recorded = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  // Of all steps between the first and the last.
  double estimate() const {
    return seconds * static_cast<double>(last_step - first_step + 1) /
           static_cast<double>(recorded);
  }
};

struct WorkerTime {
  std::optional<double> begin_s;
  double end_s = 0.0;
  std::map<Mode, ModeTime> modes;
};

class OverallFrameworkMetrics : public Rule {
 public:
  explicit OverallFrameworkMetrics(const Parameters&) {}

  void check(const StepView& step, std::vector<Finding>&) override { observe(step); }

  void observe(const StepView& step) override {
    ++coverage_.checked_steps;
    coverage_.matched_tensors = 1;
    for (const WorkerStep& worker : step.workers) {
      ++coverage_.checked_tensor_steps;
      const StepInfo& info = worker.record->info;
      const double begin = static_cast<double>(info.wall_time_ns) * 1e-9;
      const double seconds = static_cast<double>(info.duration_ns) * 1e-9;
      WorkerTime& time = times_.at(worker);
      if (!time.begin_s) time.begin_s = begin;
      time.end_s = std::max(time.end_s, begin + seconds);
      ModeTime& mode = time.modes[info.mode];
      if (mode.recorded++ == 0) mode.first_step = info.mode_step;
      mode.last_step = std::max(mode.last_step, info.mode_step);
      mode.seconds += seconds;
      const auto step_time = step_time_.value(worker);
      const auto data_time = data_time_.value(worker);
      if (!step_time || !data_time) continue;
      step_seconds_ += *step_time;
      data_seconds_ += *data_time;
    }
  }

  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "steps"; }

  std::string summary() const override {
    double whole = 0.0;
    std::map<Mode, double> modes;
    for (const WorkerTime& time : times_.all()) {
      if (!time.begin_s) continue;
      whole += time.end_s - *time.begin_s;
      for (const auto& [mode, spent] : time.modes) modes[mode] += spent.estimate();
    }
    if (whole <= 0.0) return "";
    std::vector<std::string> parts;
    double other = whole;
    for (const auto& [mode, seconds] : modes) {
      if (seconds / whole < kMinShare) continue;
      parts.push_back(fmt::format("{} {:.1f} %", mode_name(mode), 100.0 * seconds / whole));
      other -= seconds;
    }
    parts.push_back(fmt::format("other {:.1f} %", 100.0 * std::max(0.0, other) / whole));
    std::string text = fmt::format("of {:.4g} s: {}", whole, join(parts, ", "));
    if (step_seconds_ > 0.0) {
      text += fmt::format("; waiting for data {:.1f} % of a step's time",
                          100.0 * data_seconds_ / step_seconds_);
    }
    return text;
  }

 private:
  NamedScalar step_time_{"^step_time$"};
  NamedScalar data_time_{"^data_time$"};
  PerWorker<WorkerTime> times_;
  double step_seconds_ = 0.0;
  double data_seconds_ = 0.0;
  Coverage coverage_;
};

}  // namespace

const RuleDescriptor& overall_framework_metrics_rule() {
  static constexpr std::array<std::string_view, 1> kCollections = {"timings"};
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A summary of where the time of the training went; never fires.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"It tells what is worth making faster.", kCauses,
                 "Make the largest share faster first."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<OverallFrameworkMetrics>,
  };
  return kDescriptor;
}

}  // namespace tensortap
