// MaxInitializationTime: too long from the start to the first step.
#include <array>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "MaxInitializationTime";

constexpr std::string_view kDoc =
    R"(Fires when more than `threshold` minutes pass between the first sample of the machine, taken 0.1 s
after the run was opened, and the begin of the first step. Judged when that step has ended; a run
that ends without one is judged by its length. Each start of a resumed training is judged by itself.
What a script does before it makes its hook is not seen.

Looks at `system/time` and at when steps begin.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 2> kParameters = {{
    {"threshold", ParameterType::kFloat, "20", "Minutes.", 0, 1e308, true},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a data set that is downloaded, unpacked or read whole before the first step",
    "a large checkpoint on slow storage",
    "workers that wait for each other: a rank that never came",
    "kernels or graphs that are compiled",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

class MaxInitializationTime : public SystemRule {
 public:
  explicit MaxInitializationTime(const Parameters& parameters)
      : SystemRule({}), threshold_s_(60.0 * parameters.get_float("threshold")) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    Start& start = start_of(point.worker);
    if (!start.sampled_s && !std::isnan(sample.time_s)) start.sampled_s = sample.time_s;
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (const WorkerStep& worker : step.workers) {
      Start& start = start_of(worker);
      if (!start.stepped_s) {
        start.stepped_s = static_cast<double>(worker.record->info.wall_time_ns) * 1e-9;
      }
      if (start.is_judged || !start.sampled_s || findings == nullptr) continue;
      start.is_judged = true;
      const double seconds = *start.stepped_s - *start.sampled_s;
      if (!(seconds > threshold_s_)) continue;
      Finding finding = finding_at(step, "", worker.worker);
      finding.statistic = "initialization_minutes";
      finding.observed = seconds / 60.0;
      finding.threshold = threshold_s_ / 60.0;
      finding.message =
          fmt::format("The first step began {:.1f} s after the start, more than {:.1f} s.", seconds,
                      threshold_s_);
      findings->push_back(std::move(finding));
    }
  }

 private:
  struct Start {
    std::optional<std::uint32_t> session;
    std::optional<double> sampled_s;  // first sample
    std::optional<double> stepped_s;  // begin of the first step
    bool is_judged = false;
  };

  Start& start_of(const WorkerStep& worker) {
    Start& start = starts_.at(worker);
    const std::uint32_t session = worker.record->info.session;
    if (start.session != session) start = {session, {}, {}, false};
    return start;
  }

  const double threshold_s_;
  PerWorker<Start> starts_;
};

}  // namespace

const RuleDescriptor& max_initialization_time_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Too long from the start to the first step.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"The machine is paid for before anything is learned, at every start again.",
                 kCauses,
                 "Prepare the data ahead of the training, stream it, or keep it near the machine."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<MaxInitializationTime>,
  };
  return kDescriptor;
}

}  // namespace tensortap
