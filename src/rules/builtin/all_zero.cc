// AllZero: tensors that are zero, wholly or for the most part.
#include <array>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "AllZero";

constexpr std::string_view kDoc =
    R"(Fires when at least `threshold` percent of a tensor's elements are zero. Both zeros of floating
point count, NaN does not; a tensor without elements is left out.

Looks at the union of `collection_names` and `tensor_regex`, one of which must be given, at steps of
every mode. Several workers are judged one by one. Statistics are enough.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    kCollectionNamesParameter,
    kTensorRegexParameter,
    {"threshold", ParameterType::kFloat, "100",
     "Zeros from which on the rule fires, in percent of the elements.", 0.0, 100.0, true},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "weights that were initialised to zero, or a gradient that never arrives",
    "dead rectified units",
    "a batch of padding, or a mask that hides everything",
    "float16 underflow",
};

class AllZero : public TensorRule {
 public:
  explicit AllZero(const Parameters& parameters)
      : TensorRule(asked_scope(kName, parameters, false)),
        threshold_(parameters.get_float("threshold")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const Statistics& s = row.statistics;
    if (findings == nullptr || s.count == 0) return;
    const double percent = 100.0 * static_cast<double>(s.zero_count) / static_cast<double>(s.count);
    if (percent < threshold_) return;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.statistic = "zero_percent";
    finding.observed = percent;
    finding.threshold = threshold_;
    finding.message =
        s.zero_count == s.count
            ? fmt::format("All {} elements of {} are zero at step {}.", s.count, finding.tensor,
                          finding.step)
            : fmt::format("{:.4g}% of {} is zero at step {} ({} of {} elements), {:g}% or more.",
                          percent, finding.tensor, finding.step, s.zero_count, s.count, threshold_);
    findings->push_back(std::move(finding));
  }

 private:
  const double threshold_;
};

}  // namespace

const RuleDescriptor& all_zero_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Tensors that are zero, wholly or for the most part.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kWeights,
      .advice = {"What is zero passes nothing on: no signal forward, no gradient back.", kCauses,
                 "Look at the first step at which it is zero, and at what feeds this tensor."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<AllZero>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
