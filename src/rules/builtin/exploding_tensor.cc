// ExplodingTensor: NaN or infinities in a tensor.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/tensor_rule.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ExplodingTensor";
constexpr std::array kPolicies = {WorkerPolicy::kAny, WorkerPolicy::kFirst};

constexpr std::string_view kDoc =
    R"(Fires when a tensor holds a NaN or an infinite element; with `only_nan`, a NaN. One such
element spoils everything that is computed from it, so there is no threshold. Every offender of a
step is reported with its counts of NaN, +Inf and -Inf and its dtype: a float16 tensor may be
infinite only because a large float32 value did not fit into it. Where the raw value was kept, so is
the flat index of the first bad element.

Looks at all saved tensors, or at the union of `collection_names` and `tensor_regex`, at steps of
every mode. Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections to look at, separated by commas; with tensor_regex their union, with neither all "
     "tensors."},
    {"tensor_regex", ParameterType::kList, "",
     "Patterns of tensor names to look at, separated by commas."},
    {"only_nan", ParameterType::kBool, "false", "Ignore infinities."},
    {"worker_policy", ParameterType::kString, "any",
     "Whose tensors count with several workers: any (each is judged) or first."},
}};

constexpr std::array<std::string_view, 5> kCauses = {
    "a learning rate that is too high, or no warm-up",
    "a division, logarithm or square root at zero in a hand-written loss or layer",
    "float16 overflow without loss scaling",
    "NaN or infinite values in the input data",
    "an exploding gradient that is not clipped",
};

class ExplodingTensor : public TensorRule {
 public:
  explicit ExplodingTensor(const Parameters& parameters)
      : TensorRule({.collections = parameters.get_list("collection_names"),
                    .regexes = parameters.get_list("tensor_regex"),
                    .is_training_only = false,
                    .policy = parse_worker_policy(kName, parameters.get_string("worker_policy"),
                                                  kPolicies)}),
        only_nan_(parameters.get_bool("only_nan")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const Statistics& s = row.statistics;
    const std::uint64_t infinite = only_nan_ ? 0 : s.positive_inf_count | s.negative_inf_count;
    if (findings == nullptr || (s.nan_count | infinite) == 0) return;
    findings->push_back(describe(step, worker, row));
  }

 private:
  Finding describe(const StepView& step, const WorkerStep& worker, const StatisticsRow& row) const {
    const Statistics& s = row.statistics;
    const std::uint64_t infinite = s.positive_inf_count + s.negative_inf_count;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.severity = Severity::kCritical;
    finding.statistic = s.nan_count != 0 ? "nan_count" : "inf_count";
    finding.observed = static_cast<double>(s.nan_count != 0 ? s.nan_count : infinite);
    finding.threshold = 0.0;
    std::vector<std::string> counts;
    if (s.nan_count != 0) counts.push_back(fmt::format("{} NaN", s.nan_count));
    if (s.positive_inf_count != 0) counts.push_back(fmt::format("{} +Inf", s.positive_inf_count));
    if (s.negative_inf_count != 0) counts.push_back(fmt::format("{} -Inf", s.negative_inf_count));
    finding.message = fmt::format("{} holds {} at step {}, of {} elements ({}){}.", finding.tensor,
                                  join(counts, ", "), finding.step, s.count,
                                  dtype_name(layout_of(worker, row).dtype), place(worker, row));
    return finding;
  }

  // ", the first at flat index 7", where that can be known.
  std::string place(const WorkerStep& worker, const StatisticsRow& row) const {
    if (row.statistics.count < 2) return "";
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) return "";
    const auto first = std::find_if(
        values->elements.begin(), values->elements.end(),
        [&](double element) { return only_nan_ ? std::isnan(element) : !std::isfinite(element); });
    return fmt::format(", the first at flat index {}", first - values->elements.begin());
  }

  const bool only_nan_;
};

}  // namespace

const RuleDescriptor& exploding_tensor_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "NaN or infinite elements in a tensor.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kNonFinite,
      .advice = {"One such element spoils everything that is computed from it; the weights do not "
                 "recover by themselves.",
                 kCauses,
                 "Look at the first step and, in it, at the first tensor in the order of the "
                 "forward pass; go back to a checkpoint from before that step."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<ExplodingTensor>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
