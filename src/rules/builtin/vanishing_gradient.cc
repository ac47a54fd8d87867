// VanishingGradient: gradients so small that the layer no longer learns.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/tensor_rule.h"

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

constexpr std::array<std::string_view, 5> kCauses = {
    "saturating activations (sigmoid, tanh) in a deep stack",
    "weights initialised too small",
    "no normalisation and no residual path in a deep network",
    "dead units: see the gradients' zero_count",
    "float16 underflow, or a loss that is scaled down too far",
};

class VanishingGradient : public TensorRule {
 public:
  explicit VanishingGradient(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .policy = parse_worker_policy(kName, parameters.get_string("worker_policy"),
                                                  kPolicies)}),
        threshold_(parameters.get_float("threshold")),
        min_consecutive_(parameters.get_int("min_consecutive")),
        ignore_frozen_(parameters.get_bool("ignore_frozen")) {}

 protected:
  void begin(const StepView&) override { offenders_.clear(); }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    const double abs_mean = row.statistics.abs_mean;  // NaN when nothing is finite
    bool is_offending = abs_mean < threshold_;
    if (min_consecutive_ > 1 || ignore_frozen_) {
      is_offending = remember(worker, row, step.mode) && is_offending;
    }
    if (is_offending) offenders_.push_back({abs_mean, &worker, row.tensor});
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (findings == nullptr) return;
    std::sort(offenders_.begin(), offenders_.end());
    for (const Offender& offender : offenders_) findings->push_back(describe(step, offender));
  }

 private:
  // Smallest first, then in the order of workers and of layers (ids ascend as tensors first
  // appear).
  struct Offender {
    double abs_mean = 0.0;
    const WorkerStep* worker = nullptr;
    TensorId tensor = 0;
    auto operator<=>(const Offender&) const = default;
  };
  struct History {
    std::array<std::int64_t, 2> low_in_a_row{};  // TRAIN, GLOBAL
    bool was_nonzero = false;
  };

  // Whether the history of the tensor lets it fire when it is low at this step.
  bool remember(const WorkerStep& worker, const StatisticsRow& row, Mode mode) {
    if (row.statistics.finite_count() == 0) return false;
    History& history = histories_.at(worker, row.tensor);
    std::int64_t& low = history.low_in_a_row[mode == Mode::kTrain ? 0 : 1];
    low = row.statistics.abs_mean < threshold_ ? low + 1 : 0;
    history.was_nonzero = history.was_nonzero || row.statistics.abs_mean > 0.0;
    return low >= min_consecutive_ && (history.was_nonzero || !ignore_frozen_);
  }

  Finding describe(const StepView& step, const Offender& offender) const {
    Finding finding = finding_at(step, offender.worker->dictionary->tensors[offender.tensor].name,
                                 offender.worker->worker);
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
  std::vector<Offender> offenders_;
  PerTensor<History> histories_;
};

}  // namespace

const RuleDescriptor& vanishing_gradient_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Gradients so small that a layer no longer learns.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kGradient,
      .advice = {"A layer whose gradient is next to nothing does not learn, and neither does what "
                 "lies before it.",
                 kCauses,
                 "Look at where in the network the small gradients begin, and at the activations "
                 "and the initialisation there."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<VanishingGradient>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
