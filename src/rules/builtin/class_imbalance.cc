// ClassImbalance: classes of very different sizes, or one that is mispredicted.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/classes.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ClassImbalance";
constexpr std::array<std::string_view, 3> kAccumulations = {"auto", "true", "false"};

constexpr std::string_view kDoc =
    R"(Counts the labels of each class, and which of them were mispredicted, over the steps. Once
there are `samples` labels, judges at every step and fires when the largest class has more than
`threshold_imbalance` times the samples of the smallest, or when more than `threshold_misprediction` of
a class (with at least `min_class_samples`) were mispredicted. Each of these is told once, and again
only after it has been fine.

Classes that have not occurred do not count, unless `num_classes` says how many there are. Steps that
have the same labels as the step before show one validation set again and again, as XGBoost does; then
each step is judged alone (`accumulate` auto; true always adds up, false never).

Labels and predictions are the tensors that `labels_regex` and `predictions_regex` match. Predictions
between 0 and 1 count by whether they exceed 0.5; those with one column a class need `argmax`. Without
predictions only the sizes of the classes are judged. Raw values are needed. Training steps only,
unless `mode` says otherwise: steps of mode TRAIN, or GLOBAL where the script sets no mode. Several
workers are judged one by one.

Source: SageMaker Debugger's rule of that name; `accumulate`, `num_classes`, `min_class_samples` and
`mode` are additions.)";

constexpr std::array<ParameterDescriptor, 11> kParameters = {{
    {"threshold_imbalance", ParameterType::kFloat, "10",
     "Ratio of the largest to the smallest class above which the rule fires.", 1.0},
    {"threshold_misprediction", ParameterType::kFloat, "0.7",
     "Share of mispredicted samples of a class above which the rule fires.", 0.0, 1.0},
    {"samples", ParameterType::kInt, "500", "Labels that must have been seen.", 1},
    {"argmax", ParameterType::kBool, "false",
     "Whether predictions hold one score a class, of which the largest counts."},
    {"labels_regex", ParameterType::kList, ".*labels", "Pattern of the name of the labels."},
    {"predictions_regex", ParameterType::kList, ".*predictions",
     "Pattern of the name of the predictions."},
    {"accumulate", ParameterType::kString, "auto",
     "Whether steps add up: auto (unless the labels repeat), true or false."},
    {"num_classes", ParameterType::kInt, "", "Number of classes; unset = those that have occurred.",
     2},
    {"min_class_samples", ParameterType::kInt, "1",
     "Samples of a class that its mispredictions are judged by.", 1},
    {"mode", ParameterType::kString, "",
     "TRAIN, EVAL, PREDICT or GLOBAL: whose steps are judged; unset = TRAIN and GLOBAL."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 2> kCollections = {"labels", "predictions"};

constexpr std::array<std::string_view, 4> kCauses = {
    "data in which some classes are rare",
    "a sampler or a split that is not stratified",
    "a loss that does not weigh the classes",
    "labels of one class that are wrong",
};

struct Class {
  std::uint64_t count = 0;
  std::uint64_t wrong = 0;
  bool is_told = false;
};

struct Tally {
  std::map<std::int64_t, Class> classes;
  std::uint64_t count = 0;
  std::vector<std::int64_t> last_labels;
  bool is_imbalance_told = false;
};

class ClassImbalance : public Rule {
 public:
  explicit ClassImbalance(const Parameters& parameters)
      : threshold_imbalance_(parameters.get_float("threshold_imbalance")),
        threshold_misprediction_(parameters.get_float("threshold_misprediction")),
        samples_(static_cast<std::uint64_t>(parameters.get_int("samples"))),
        is_argmax_(parameters.get_bool("argmax")),
        labels_("", {}, parameters.get_list("labels_regex")),
        predictions_("", {}, parameters.get_list("predictions_regex")),
        accumulation_(choice_of(kName, parameters, "accumulate", kAccumulations)),
        class_count_(static_cast<std::size_t>(parameters.get_int("num_classes"))),
        min_class_samples_(static_cast<std::uint64_t>(parameters.get_int("min_class_samples"))),
        modes_(kName, parameters.get_string("mode")),
        policy_(worker_policy_of(kName, parameters)) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    look_at(step, &findings);
  }
  void observe(const StepView& step) override { look_at(step, nullptr); }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = labels_.matched_tensors() + predictions_.matched_tensors();
    if (labels_.matched_tensors() == 0) coverage.matched_tensors = 0;
    return coverage;
  }
  std::string selection() const override { return labels_.description() + " (labels)"; }

 private:
  void look_at(const StepView& step, std::vector<Finding>* findings) {
    if (!modes_.takes(step.mode)) return;
    std::uint64_t count = 0;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      const StatisticsRow* labels = labels_.find(worker);
      if (labels == nullptr) continue;
      const StatisticsRow* predictions = predictions_.find(worker);
      const auto label_values = values_of(worker, *labels);
      const auto prediction_values =
          predictions == nullptr ? std::nullopt : values_of(worker, *predictions);
      if (!label_values || (predictions != nullptr && !prediction_values)) {
        if (findings != nullptr) ++coverage_.valueless_tensor_steps;
        continue;
      }
      ++count;
      Tally& tally = tallies_[std::string(worker.worker)];
      add(tally, classes_of(*label_values, "the labels"),
          prediction_values ? predicted(*prediction_values) : std::vector<std::int64_t>());
      if (findings == nullptr || tally.count < samples_) continue;
      judge_sizes(step, worker, tensor_name(worker, *labels), tally, *findings);
      if (predictions == nullptr) continue;
      judge_mispredictions(step, worker, tensor_name(worker, *predictions), tally, *findings);
    }
    if (findings == nullptr) return;
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  std::vector<std::int64_t> predicted(const TensorValues& values) const {
    if (has_scores(values) && !is_argmax_) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the predictions have several columns: set argmax if they are scores of classes");
    }
    return classes_of(values, "the predictions");
  }

  // Without predictions, `predictions` is empty.
  void add(Tally& tally, std::vector<std::int64_t> labels,
           const std::vector<std::int64_t>& predictions) const {
    if (!predictions.empty() && predictions.size() != labels.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} labels, but {} predictions", labels.size(), predictions.size()));
    }
    const bool are_several =
        std::adjacent_find(labels.begin(), labels.end(), std::not_equal_to<>()) != labels.end();
    const bool is_repeated = are_several && labels == tally.last_labels;
    if (accumulation_ == 2 || (accumulation_ == 0 && is_repeated)) {
      for (auto& [number, one] : tally.classes) one.count = one.wrong = 0;
      tally.count = 0;
    }
    for (std::size_t i = 0; i < labels.size(); ++i) {
      Class& one = tally.classes[labels[i]];
      ++one.count;
      if (!predictions.empty() && predictions[i] != labels[i]) ++one.wrong;
    }
    tally.count += labels.size();
    tally.last_labels = std::move(labels);
  }

  void judge_sizes(const StepView& step, const WorkerStep& worker, const std::string& name,
                   Tally& tally, std::vector<Finding>& findings) const {
    std::vector<std::pair<std::uint64_t, std::int64_t>> sizes;  // count, class
    for (const auto& [number, one] : tally.classes) {
      if (one.count > 0) sizes.emplace_back(one.count, number);
    }
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    const double ratio = sizes.size() < class_count_
                             ? std::numeric_limits<double>::infinity()
                             : static_cast<double>(most->first) / static_cast<double>(least->first);
    const bool is_imbalanced = ratio > threshold_imbalance_;
    if (!is_imbalanced) tally.is_imbalance_told = false;
    if (!is_imbalanced || std::exchange(tally.is_imbalance_told, true)) return;
    Finding finding = finding_at(step, name, worker.worker);
    finding.statistic = "class_ratio";
    finding.observed = ratio;
    finding.threshold = threshold_imbalance_;
    finding.message =
        sizes.size() < class_count_
            ? fmt::format("Only {} of {} classes occur among {} labels up to step {}.",
                          sizes.size(), class_count_, tally.count, finding.step)
            : fmt::format(
                  "Class {} has {} labels and class {} has {} up to step {}: {:.3g} times "
                  "as many, more than {:g}.",
                  most->second, most->first, least->second, least->first, finding.step, ratio,
                  threshold_imbalance_);
    findings.push_back(std::move(finding));
  }

  void judge_mispredictions(const StepView& step, const WorkerStep& worker, const std::string& name,
                            Tally& tally, std::vector<Finding>& findings) const {
    for (auto& [number, one] : tally.classes) {
      if (one.count < min_class_samples_) continue;
      const double share = static_cast<double>(one.wrong) / static_cast<double>(one.count);
      const bool is_bad = share > threshold_misprediction_;
      if (!is_bad) one.is_told = false;
      if (!is_bad || std::exchange(one.is_told, true)) continue;
      Finding finding = finding_at(step, name, worker.worker);
      finding.statistic = "misprediction_share";
      finding.observed = share;
      finding.threshold = threshold_misprediction_;
      finding.message = fmt::format(
          "{} of {} samples of class {} were mispredicted up to step {} ({:.3g}, more than {:g}).",
          one.wrong, one.count, number, finding.step, share, threshold_misprediction_);
      findings.push_back(std::move(finding));
    }
  }

  const double threshold_imbalance_;
  const double threshold_misprediction_;
  const std::uint64_t samples_;
  const bool is_argmax_;
  ClassOperand labels_;
  ClassOperand predictions_;
  const std::size_t accumulation_;  // of kAccumulations
  const std::size_t class_count_;   // 0 when unset
  const std::uint64_t min_class_samples_;
  const ModeFilter modes_;
  const WorkerPolicy policy_;
  Coverage coverage_;
  std::map<std::string, Tally> tallies_;  // by worker
};

}  // namespace

const RuleDescriptor& class_imbalance_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Classes of very different sizes, or one that is mispredicted.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kData,
      .advice = {"A model learns the frequent classes and is right for the wrong reason; the rare "
                 "ones are often those that matter.",
                 kCauses,
                 "Weigh the classes in the loss, sample them evenly, and judge by more than "
                 "accuracy."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<ClassImbalance>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
