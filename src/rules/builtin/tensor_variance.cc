// TensorVariance: elements that lie too far apart, or too close together.
#include <array>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "TensorVariance";

constexpr std::string_view kDoc =
    R"(Fires when the variance of a tensor's finite elements (divided by their number) lies strictly
above `max_threshold` or strictly below `min_threshold`; one of the two must be given. A high one
foretells saturated units or an explosion, a low one a layer that has collapsed. Tensors of a single
element have no variance and are left out.

Looks at the union of `collection_names` and `tensor_regex`, one of which must be given, at training
steps: steps of mode TRAIN, or GLOBAL where the script sets no mode. Several workers are judged one
by one. Statistics are enough.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    kCollectionNamesParameter,
    kTensorRegexParameter,
    {"max_threshold", ParameterType::kFloat, "",
     "Variance above which the rule fires, in the tensor's unit squared; unset = no limit.", 0.0},
    {"min_threshold", ParameterType::kFloat, "",
     "Variance below which the rule fires, in the tensor's unit squared; unset = no limit.", 0.0},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "an initialisation that does not fit the layer's size",
    "a learning rate that is too high",
    "inputs that are not normalised",
    "a layer that has collapsed: all of its outputs are alike",
};

class TensorVariance : public TensorRule {
 public:
  explicit TensorVariance(const Parameters& parameters)
      : TensorRule(asked_scope(kName, parameters, true)),
        has_max_(parameters.is_set("max_threshold")),
        has_min_(parameters.is_set("min_threshold")),
        max_(parameters.get_float("max_threshold")),
        min_(parameters.get_float("min_threshold")) {
    if (!has_max_ && !has_min_) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rule {}: max_threshold or min_threshold must be given", kName));
    }
    if (has_max_ && has_min_ && min_ >= max_) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("rule {}: min_threshold ({:g}) must be less than max_threshold ({:g})", kName,
                      min_, max_));
    }
  }

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const Statistics& s = row.statistics;
    if (findings == nullptr || s.count < 2) return;
    const bool is_high = has_max_ && s.variance > max_;  // NaN, when nothing is finite, is neither
    const bool is_low = has_min_ && s.variance < min_;
    if (!is_high && !is_low) return;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.statistic = "variance";
    finding.observed = s.variance;
    finding.threshold = is_high ? max_ : min_;
    finding.message =
        fmt::format("The variance of {} is {:.4g} at step {}, {} {:g}.", finding.tensor, s.variance,
                    finding.step, is_high ? "above" : "below", finding.threshold);
    findings->push_back(std::move(finding));
  }

 private:
  const bool has_max_;
  const bool has_min_;
  const double max_;
  const double min_;
};

}  // namespace

const RuleDescriptor& tensor_variance_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Elements that lie too far apart, or too close together.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kWeights,
      .advice = {"A spread that leaves its range comes before saturation, explosion or collapse.",
                 kCauses,
                 "Compare the variances of the layers and of the first steps: where does it leave "
                 "the range first?"},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<TensorVariance>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
