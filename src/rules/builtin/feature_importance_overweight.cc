// FeatureImportanceOverweight: a few features carry nearly all importance.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <vector>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "FeatureImportanceOverweight";

constexpr std::string_view kDoc =
    R"(Adds up the importances of the features at a step and fires when the `nfeatures` largest make up
more than `threshold` of the sum. Features that no split uses are not among them. A model with no more
than nfeatures features always fires, unless `skip_if_few` is set.

Looks at one-element tensors that `tensor_regex` matches, named `feature_importance/<type>/<feature>`;
several types (weight, gain, cover, total_gain, total_cover) are judged one by one. Training steps
only: steps of mode TRAIN, or GLOBAL where the script sets no mode.

Source: SageMaker Debugger's rule of that name; `skip_if_few` is an addition.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"threshold", ParameterType::kFloat, "0.8",
     "Share of the importance above which the rule fires.", 0.0, 1.0},
    {"nfeatures", ParameterType::kInt, "3", "Features that are added up, from the largest.", 1},
    {"tensor_regex", ParameterType::kList, ".*feature_importance/weight",
     "Patterns of names of importances, separated by commas."},
    {"skip_if_few", ParameterType::kBool, "false",
     "Leave out models that have no more than nfeatures features."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 1> kCollections = {"feature_importance"};

constexpr std::array<std::string_view, 3> kCauses = {
    "a feature that gives away the label (leakage)",
    "a feature that identifies the sample, such as a number or a date",
    "trees that are too shallow, or too few, to use other features",
};

struct Importance {
  double value = 0.0;
  std::string feature;
  bool operator>(const Importance& other) const { return value > other.value; }
};

class FeatureImportanceOverweight : public TensorRule {
 public:
  explicit FeatureImportanceOverweight(const Parameters& parameters)
      : TensorRule({.regexes = parameters.get_list("tensor_regex"),
                    .policy = worker_policy_of(kName, parameters)}),
        threshold_(parameters.get_float("threshold")),
        feature_count_(static_cast<std::size_t>(parameters.get_int("nfeatures"))),
        skips_few_(parameters.get_bool("skip_if_few")) {}

 protected:
  void begin(const StepView&) override { importances_.clear(); }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    const std::optional<double> value = single_value(row);
    if (!value || !(*value > 0.0)) return;
    const std::string& name = tensor_name(worker, row);
    const std::size_t slash = name.rfind('/');
    const std::size_t end = slash == std::string::npos ? 0 : slash;
    importances_[{std::string(worker.worker), name.substr(0, end)}].push_back(
        {*value, name.substr(end == 0 ? 0 : end + 1)});
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (findings == nullptr) return;
    for (auto& [key, features] : importances_) {
      const auto& [worker, type] = key;
      if (skips_few_ && features.size() <= feature_count_) continue;
      std::stable_sort(features.begin(), features.end(), std::greater<>());
      double sum = 0.0;
      double largest = 0.0;
      std::vector<std::string> names;
      for (std::size_t i = 0; i < features.size(); ++i) {
        sum += features[i].value;
        if (i >= feature_count_) continue;
        largest += features[i].value;
        names.push_back(features[i].feature);
      }
      if (!(largest / sum > threshold_)) continue;
      Finding finding = finding_at(step, type + "/" + names.front(), worker);
      finding.statistic = "importance_share";
      finding.observed = largest / sum;
      finding.threshold = threshold_;
      finding.message =
          fmt::format("{} of {} features ({}) carry {:.3g}% of {} at step {}, more than {:g}%.",
                      names.size(), features.size(), join(names, ", "), 100.0 * finding.observed,
                      type, finding.step, 100.0 * threshold_);
      findings->push_back(std::move(finding));
    }
  }

 private:
  const double threshold_;
  const std::size_t feature_count_;
  const bool skips_few_;
  // Of the current step, by worker and type.
  std::map<std::pair<std::string, std::string>, std::vector<Importance>> importances_;
};

}  // namespace

const RuleDescriptor& feature_importance_overweight_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A few features carry nearly all importance.",
      .doc = kDoc,
      .family = RuleFamily::kTree,
      .stage = Stage::kData,
      .advice = {"A model that hangs on a few features is wrong as soon as one of them is.",
                 kCauses,
                 "Look at the features that are named: would they be known at the time of the "
                 "prediction?"},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<FeatureImportanceOverweight>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
