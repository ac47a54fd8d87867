// VanishingGradient: gradients so small that the layer no longer learns.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "VanishingGradient";
constexpr std::string_view kCollection = "gradients";
constexpr std::array kPolicies = {WorkerPolicy::kAny, WorkerPolicy::kFirst};

constexpr std::string_view kDoc =
    R"(Fires when the mean magnitude of a gradient, over its finite elements, lies strictly below
`threshold`. Each gradient is judged by itself, so that one dead layer shows among healthy ones;
every offender of a step is reported, smallest first.

Looks at the collection `gradients` at training steps: steps of mode TRAIN, or GLOBAL where the
script sets no mode. EVAL and PREDICT steps are left alone. Several workers are judged one by one.

A gradient without a finite element has no mean and does not fire; ExplodingTensor reports it. A
parameter that is frozen but still gets a gradient of exact zeros fires, unless `ignore_frozen` is
set.

What to do: look at where in the network the small gradients begin. Common causes are saturating
activations (sigmoid, tanh) in deep stacks, weights initialised too small, a missing normalisation
or residual path, a loss scaled down too far, float16 underflow, and units that are dead (see the
gradients' zero_count).

Source: SageMaker Debugger's rule of that name (threshold 1e-7); `min_consecutive` and
`ignore_frozen` are additions.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"threshold", ParameterType::kFloat, "1e-7",
     "Mean |gradient| below which the rule fires, in the gradient's unit.", 0.0, 1e308, true},
    {"min_consecutive", ParameterType::kInt, "1",
     "How many saved steps in a row a gradient must be below the threshold.", 1},
    {"ignore_frozen", ParameterType::kBool, "false",
     "Leave out gradients that have been exactly zero at every saved step so far."},
    {"worker_policy", ParameterType::kString, "any",
     "Whose gradients count with several workers: any (each is judged) or first."},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

class VanishingGradient : public Rule {
 public:
  explicit VanishingGradient(const Parameters& parameters)
      : threshold_(parameters.get_float("threshold")),
        min_consecutive_(parameters.get_int("min_consecutive")),
        ignore_frozen_(parameters.get_bool("ignore_frozen")),
        policy_(parse_worker_policy(kName, parameters.get_string("worker_policy"), kPolicies)),
        selector_({std::string(kCollection)}, {}) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    if (!is_judged(step.mode)) return;
    offenders_.clear();
    const std::uint64_t count = look_at(step);
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
    std::sort(offenders_.begin(), offenders_.end());
    for (const Offender& offender : offenders_) findings.push_back(describe(step, offender));
  }

  void observe(const StepView& step) override {
    if (is_judged(step.mode)) look_at(step);
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = selector_.matched_tensors();
    return coverage;
  }
  std::string selection() const override { return selector_.description(); }
  std::vector<std::string> wanted_collections() const override { return selector_.collections(); }

 private:
  // Smallest first, then in the order of workers and of layers (ids ascend as tensors first
  // appear).
  struct Offender {
    double abs_mean = 0.0;
    std::size_t worker = 0;  // position in the step
    TensorId tensor = 0;
    auto operator<=>(const Offender&) const = default;
  };
  struct History {
    std::array<std::int64_t, 2> low_in_a_row{};  // TRAIN, GLOBAL
    bool was_nonzero = false;
  };

  static bool is_judged(Mode mode) { return mode == Mode::kTrain || mode == Mode::kGlobal; }

  // Fills offenders_; gives the number of gradients seen.
  std::uint64_t look_at(const StepView& step) {
    std::uint64_t count = 0;
    const std::span<const WorkerStep> workers = judged_workers(step, policy_);
    for (std::size_t w = 0; w < workers.size(); ++w) {
      for (const StatisticsRow& row : workers[w].record->rows) {
        if (!selector_.selects(workers[w], row.tensor)) continue;
        ++count;
        const double abs_mean = row.statistics.abs_mean;  // NaN when nothing is finite
        bool is_offending = abs_mean < threshold_;
        if (min_consecutive_ > 1 || ignore_frozen_) {
          is_offending = remember(workers[w].worker_index, row, step.mode) && is_offending;
        }
        if (is_offending) offenders_.push_back({abs_mean, w, row.tensor});
      }
    }
    return count;
  }

  // Whether the history of the tensor lets it fire when it is low at this step.
  bool remember(std::uint32_t worker, const StatisticsRow& row, Mode mode) {
    if (row.statistics.finite_count() == 0) return false;
    if (histories_.size() <= worker) histories_.resize(worker + 1);
    std::vector<History>& histories = histories_[worker];
    if (histories.size() <= row.tensor) histories.resize(row.tensor + 1);
    History& history = histories[row.tensor];
    std::int64_t& low = history.low_in_a_row[mode == Mode::kTrain ? 0 : 1];
    low = row.statistics.abs_mean < threshold_ ? low + 1 : 0;
    history.was_nonzero = history.was_nonzero || row.statistics.abs_mean > 0.0;
    return low >= min_consecutive_ && (history.was_nonzero || !ignore_frozen_);
  }

  Finding describe(const StepView& step, const Offender& offender) const {
    const WorkerStep& worker = step.workers[offender.worker];
    Finding finding =
        finding_at(step, worker.dictionary->tensors[offender.tensor].name, worker.worker);
    finding.statistic = "abs_mean";
    finding.observed = offender.abs_mean;
    finding.threshold = threshold_;
    finding.message = fmt::format(
        "Mean |gradient| of {} fell to {:.2g} at step {}, below {:g}: the layer has stopped "
        "learning.",
        finding.tensor, finding.observed, finding.step, finding.threshold);
    return finding;
  }

  const double threshold_;
  const std::int64_t min_consecutive_;
  const bool ignore_frozen_;
  const WorkerPolicy policy_;
  TensorSelector selector_;
  Coverage coverage_;
  std::vector<Offender> offenders_;
  std::vector<std::vector<History>> histories_;  // [worker_index][tensor]
};

}  // namespace

const RuleDescriptor& vanishing_gradient_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Gradients so small that a layer no longer learns.",
      .doc = kDoc,
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<VanishingGradient>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
