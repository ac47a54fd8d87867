// StalledTrainingRule: no new tensors for a while.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "StalledTrainingRule";
constexpr double kNsPerSecond = 1e9;

constexpr std::string_view kDoc =
    R"(Fires when nothing new has been recorded for `threshold` seconds: no step of any worker, or, with
`per_worker`, no step of some worker. Any tensor is a sign of life. Whoever follows a running
training fires while it waits, by the time since the last step came in; before the first step,
`startup_grace` seconds are given. A recorded run, and a training that watches itself, is judged by
the times of its steps, so a pause is found when it is over. Each pause is told once, as a finding at
the last step before it. A run that says that it has ended is not waited for.

With `stop_training_on_fire` the rule has the action stop_training: run it beside the training
(`tensortap check RUN --follow`), since a training that hangs cannot stop itself.

Source: SageMaker Debugger's rule of that name; `startup_grace` and `per_worker` are additions.
`training_job_name_prefix` is accepted, since SageMaker sends it: the run that is watched is the one
to stop.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"threshold", ParameterType::kFloat, "1800", "Seconds without a new step.", 0.0, 1e308, true},
    {"stop_training_on_fire", ParameterType::kBool, "false",
     "Ask the training to stop, as the action stop_training does."},
    {"training_job_name_prefix", ParameterType::kString, "",
     "Accepted and without effect: the run that is watched is stopped."},
    {"startup_grace", ParameterType::kFloat, "",
     "Seconds until the first step; unset = the threshold.", 0.0, 1e308, true},
    {"per_worker", ParameterType::kBool, "false",
     "Whether each worker must give signs of life, not just any."},
}};

constexpr std::array<std::string_view, 5> kCauses = {
    "a data loader or a file system that hangs",
    "a collective operation that waits for a worker that is gone",
    "a long evaluation or checkpoint, without any step",
    "a deadlock",
    "a threshold that is shorter than the time between saved steps",
};

// One source of signs of life: all workers together, or one.
struct Pulse {
  std::optional<std::int64_t> last_ns;           // end of the newest step, on the training's clock
  Finding place;                                 // the newest step
  std::optional<std::int64_t> waiting_since_ns;  // on the watcher's clock, since the newest step
  bool is_told = false;                          // of the pause that is going on
};

class StalledTraining : public Rule {
 public:
  explicit StalledTraining(const Parameters& parameters)
      : threshold_seconds_(parameters.get_float("threshold")),
        grace_seconds_(parameters.is_set("startup_grace") ? parameters.get_float("startup_grace")
                                                          : threshold_seconds_),
        is_per_worker_(parameters.get_bool("per_worker")) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    look_at(step, &findings);
  }
  void observe(const StepView& step) override { look_at(step, nullptr); }

  void pass_time(std::int64_t now_ns, std::vector<Finding>& findings) override {
    if (pulses_.empty()) wait(start_, "", now_ns, grace_seconds_, findings);
    for (auto& [worker, pulse] : pulses_) wait(pulse, worker, now_ns, threshold_seconds_, findings);
  }

  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "any tensor"; }

 private:
  void look_at(const StepView& step, std::vector<Finding>* findings) {
    std::uint64_t row_count = 0;
    std::vector<std::pair<std::int64_t, const WorkerStep*>> ends;
    for (const WorkerStep& worker : step.workers) {
      const StepInfo& info = worker.record->info;
      ends.emplace_back(info.wall_time_ns + info.duration_ns, &worker);
      row_count += worker.record->rows.size();
      coverage_.matched_tensors =
          std::max<std::uint64_t>(coverage_.matched_tensors, worker.dictionary->tensors.size());
    }
    std::stable_sort(ends.begin(), ends.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [end_ns, worker] : ends) beat(step, *worker, end_ns, findings);
    if (findings == nullptr) return;
    ++coverage_.checked_steps;
    coverage_.checked_tensor_steps += row_count;
  }

  void beat(const StepView& step, const WorkerStep& worker, std::int64_t end_ns,
            std::vector<Finding>* findings) {
    Pulse& pulse = pulses_[is_per_worker_ ? std::string(worker.worker) : std::string()];
    if (pulse.last_ns && !pulse.is_told && findings != nullptr) {
      const double seconds = static_cast<double>(end_ns - *pulse.last_ns) / kNsPerSecond;
      if (seconds >= threshold_seconds_) findings->push_back(describe(pulse, seconds));
    }
    pulse.last_ns = std::max(pulse.last_ns.value_or(end_ns), end_ns);
    pulse.place = finding_at(step, "", is_per_worker_ ? worker.worker : std::string_view());
    pulse.waiting_since_ns.reset();
    pulse.is_told = false;
  }

  void wait(Pulse& pulse, const std::string& worker, std::int64_t now_ns, double limit_seconds,
            std::vector<Finding>& findings) const {
    if (!pulse.waiting_since_ns) pulse.waiting_since_ns = now_ns;
    const double seconds = static_cast<double>(now_ns - *pulse.waiting_since_ns) / kNsPerSecond;
    if (pulse.is_told || seconds < limit_seconds) return;
    pulse.is_told = true;
    pulse.place.worker = worker;
    findings.push_back(describe(pulse, seconds));
  }

  Finding describe(const Pulse& pulse, double seconds) const {
    Finding finding = pulse.place;
    finding.severity = Severity::kCritical;
    finding.statistic = "seconds_without_step";
    finding.observed = seconds;
    finding.threshold = pulse.last_ns ? threshold_seconds_ : grace_seconds_;
    const std::string who = finding.worker.empty() ? "" : " from " + finding.worker;
    finding.message = pulse.last_ns
                          ? fmt::format("Nothing new{} for {:.4g} s after step {}, {:g} s or more.",
                                        who, seconds, finding.step, finding.threshold)
                          : fmt::format("No first step for {:.4g} s, {:g} s or more.", seconds,
                                        finding.threshold);
    return finding;
  }

  const double threshold_seconds_;
  const double grace_seconds_;
  const bool is_per_worker_;
  Coverage coverage_;
  Pulse start_;
  std::map<std::string, Pulse> pulses_;  // by worker; "" for all together
};

}  // namespace

const RuleDescriptor& stalled_training_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "No new tensors for a while.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kSystem,
      .advice =
          {"A training that hangs costs as much as one that runs.", kCauses,
           "Look where its processes stand (py-spy dump, gdb), at the data it reads and, with "
           "several workers, which one is behind."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<StalledTraining>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
