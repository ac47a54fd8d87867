// UnchangedTensor: tensors that no longer change.
#include <algorithm>
#include <array>
#include <deque>

#include <fmt/core.h>

#include "rules/closeness.h"
#include "rules/registry.h"
#include "rules/series.h"
#include "rules/shared_parameters.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "UnchangedTensor";

constexpr std::string_view kDoc =
    R"(Fires when the last `num_steps` saved values of a tensor are the same: each older one is
compared with the newest, element by element, as NumPy's allclose does (|old - new| <= atol +
rtol |new|). The steps need not follow each other; those before start_step count. A tensor that
changes its shape has changed.

With raw values the comparison is exact. Without them the statistics of the steps are compared
within the same tolerances (minimum, maximum, mean, mean magnitude, least magnitude, standard
deviation and the counts of NaN and infinities): unchanged elements always agree in these, and
elements that change leave all of them alone only by an odd chance.

Looks at the union of `collection_names` and `tensor_regex`, one of which must be given, at training
steps: steps of mode TRAIN, or GLOBAL where the script sets no mode; each mode counts for itself.
Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    kCollectionNamesParameter,
    kTensorRegexParameter,
    {"num_steps", ParameterType::kInt, "3", "Saved steps, the newest included, that are compared.",
     2},
    {"rtol", ParameterType::kFloat, "1e-5", "Tolerance relative to the newest value.", 0.0},
    {"atol", ParameterType::kFloat, "1e-8", "Tolerance in the tensor's unit.", 0.0},
    {"equal_nan", ParameterType::kBool, "false", "Whether a NaN is equal to a NaN."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a layer that is frozen by mistake",
    "parameters that the optimizer was not given",
    "a learning rate of zero, or one that has decayed to next to nothing",
    "no gradient arrives",
};

struct Snapshot {
  LayoutId layout = 0;
  Statistics statistics;
  std::optional<TensorValues> values;
};

class UnchangedTensor : public TensorRule {
 public:
  explicit UnchangedTensor(const Parameters& parameters)
      : TensorRule(asked_scope(kName, parameters, true)),
        num_steps_(static_cast<std::size_t>(parameters.get_int("num_steps"))),
        tolerance_{parameters.get_float("rtol"), parameters.get_float("atol"),
                   parameters.get_bool("equal_nan")} {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (row.statistics.count == 0) return;
    std::deque<Snapshot>& past = snapshots_.at(worker, row.tensor, step.mode);
    Snapshot now{row.layout, row.statistics, values_of(worker, row)};
    if (findings != nullptr && past.size() + 1 == num_steps_) {
      const Difference difference = largest_difference(past, now);
      if (difference.is_close) findings->push_back(describe(step, worker, row, difference));
    }
    past.push_back(std::move(now));
    if (past.size() == num_steps_) past.pop_front();
  }

 private:
  // is_close only when all of them are.
  Difference largest_difference(const std::deque<Snapshot>& past, const Snapshot& now) const {
    Difference largest;
    for (const Snapshot& old : past) {
      if (old.layout != now.layout) return {.is_close = false};
      const Difference one =
          old.values && now.values
              ? compare_elements(old.values->elements, now.values->elements, tolerance_)
              : compare_statistics(old.statistics, now.statistics, tolerance_);
      if (!one.is_close) return one;
      largest.max_absolute = std::max(largest.max_absolute, one.max_absolute);
      largest.max_relative = std::max(largest.max_relative, one.max_relative);
    }
    return largest;
  }

  Finding describe(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                   const Difference& difference) const {
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.statistic = "max_difference";
    finding.observed = difference.max_absolute;
    finding.threshold = tolerance_.absolute +
                        tolerance_.relative * statistic_value(row.statistics, StatisticId::kAbsMax);
    finding.message = fmt::format("{} has not changed over its last {} saved steps, up to step {}.",
                                  finding.tensor, num_steps_, finding.step);
    return finding;
  }

  const std::size_t num_steps_;
  const Tolerance tolerance_;
  PerSeries<std::deque<Snapshot>> snapshots_;
};

}  // namespace

const RuleDescriptor& unchanged_tensor_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Tensors that no longer change.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kWeights,
      .advice =
          {"A parameter that stays as it is learns nothing; a loss that does says that "
           "nothing does.",
           kCauses,
           "Look whether the parameter requires a gradient, whether the optimizer has it, and "
           "at the learning rate."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<UnchangedTensor>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
