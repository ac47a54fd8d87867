// Overfit: the validation loss pulls away from the training loss.
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <fmt/core.h>

#include "rules/loss_rule.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "Overfit";
constexpr std::string_view kLosses = "losses";

constexpr std::string_view kDoc =
    R"(Compares, evaluation by evaluation, the mean validation loss with the mean training loss. An
evaluation is a run of EVAL steps without a TRAIN step in between; it is compared with the TRAIN
steps since the evaluation before it. Fires when

    (validation - training) / |training| > ratio_threshold

for `patience` evaluations in a row. The finding belongs to the last step of the evaluation, and
comes when the next TRAIN step shows that it is over, or the run ends. A training loss of zero and
losses that are NaN or infinite are left out. Steps before start_step do not count at all.

In mode GLOBAL each saved step is an evaluation: `train-<metric>` is compared with
`validation-<metric>` (also valid, val, eval, test; - or _) of the same step, as XGBoost names them.

Looks at one-element tensors of the collection `losses`, or of those that `tensor_regex` says.
Metrics that are meant to rise (auc, aucpr, map, ndcg, pre, accuracy) are left out. Several workers:
their mean.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"tensor_regex", ParameterType::kList, "",
     "Patterns of names of losses, separated by commas, instead of the collection `losses`."},
    {"patience", ParameterType::kInt, "1",
     "Evaluations in a row at which the ratio must exceed the threshold.", 1},
    {"ratio_threshold", ParameterType::kFloat, "0.1",
     "How far the validation loss may lie above the training loss, relative to it.", 0.0, 1e308,
     true},
}};

constexpr std::array<std::string_view, 1> kCollections = {kLosses};

constexpr std::array<std::string_view, 5> kCauses = {
    "more parameters than the data can settle",
    "too little data, or no augmentation",
    "no regularisation (weight decay, dropout), or too little",
    "validation data of another kind than the training data",
    "the training has simply gone on for too long",
};

// The mean of the finite values.
struct Mean {
  double sum = 0.0;
  std::uint64_t count = 0;
  void add(double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    ++count;
  }
  double value() const { return sum / static_cast<double>(count); }
};

struct Loss {
  Mean training;
  Mean validation;
  Finding last;  // its place is the last EVAL step
  std::int64_t in_a_row = 0;
};

class Overfit : public LossRule {
 public:
  explicit Overfit(const Parameters& parameters)
      : LossRule(scope_of(parameters)),
        patience_(parameters.get_int("patience")),
        ratio_threshold_(parameters.get_float("ratio_threshold")) {}

  void finish(std::vector<Finding>& findings) override { close_evaluation(findings); }

 protected:
  bool wants(Mode mode) const override { return mode != Mode::kPredict; }

  void begin(const StepView& step, std::vector<Finding>* findings) override {
    if (findings != nullptr && step.mode == Mode::kTrain) close_evaluation(*findings);
    training_metrics_.clear();
    validations_.clear();
  }

  void take(const StepView& step, const LossValue& now, std::vector<Finding>* findings) override {
    if (findings == nullptr) return;
    if (losses_.size() <= now.id) losses_.resize(now.id + 1);
    Loss& loss = losses_[now.id];
    if (step.mode == Mode::kTrain) {
      loss.training.add(now.value);
    } else if (step.mode == Mode::kEval) {
      loss.validation.add(now.value);
      loss.last = finding_at(step, now.name, now.worker);
      is_in_evaluation_ = true;
    } else {
      take_metric(step, now, loss);
    }
  }

  void end(const StepView&, std::vector<Finding>* findings) override {
    if (findings == nullptr) return;
    for (const auto& [metric, loss] : validations_) {
      const auto training = training_metrics_.find(metric);
      if (training != training_metrics_.end()) {
        losses_[loss].training.add(training->second);
        judge(losses_[loss], *findings);
      }
    }
  }

 private:
  static LossScope scope_of(const Parameters& parameters) {
    LossScope scope{.regexes = parameters.get_list("tensor_regex"), .skips_rising = true};
    if (scope.regexes.empty()) scope.collections = {std::string(kLosses)};
    return scope;
  }

  void take_metric(const StepView& step, const LossValue& now, Loss& loss) {
    const MetricName name = parse_metric_name(now.name);
    if (name.data_set == MetricName::DataSet::kTraining) {
      training_metrics_[name.metric] = now.value;
    } else if (name.data_set == MetricName::DataSet::kValidation) {
      loss.validation.add(now.value);
      loss.last = finding_at(step, now.name, now.worker);
      validations_.emplace_back(name.metric, now.id);
    }
  }

  void close_evaluation(std::vector<Finding>& findings) {
    if (!is_in_evaluation_) return;
    is_in_evaluation_ = false;
    for (Loss& loss : losses_) judge(loss, findings);
  }

  // Of an evaluation that is over; begins the next one.
  void judge(Loss& loss, std::vector<Finding>& findings) {
    const bool is_whole = loss.validation.count > 0 && loss.training.count > 0;
    const double validation = loss.validation.value();
    const double training = loss.training.value();
    if (loss.validation.count > 0) loss.training = loss.validation = {};
    if (!is_whole || training == 0.0) return;
    const double ratio = (validation - training) / std::abs(training);
    loss.in_a_row = ratio > ratio_threshold_ ? loss.in_a_row + 1 : 0;
    if (loss.in_a_row < patience_) return;
    Finding finding = loss.last;
    finding.statistic = "loss_ratio";
    finding.observed = ratio;
    finding.threshold = ratio_threshold_;
    finding.message = fmt::format(
        "{}: the validation loss ({:.4g}) lies {:.3g}% above the training loss ({:.4g}) at step "
        "{}, "
        "more than {:g}%{}.",
        finding.tensor, validation, 100.0 * ratio, training, finding.step, 100.0 * ratio_threshold_,
        patience_ > 1 ? fmt::format(", for {} evaluations in a row", loss.in_a_row) : "");
    findings.push_back(std::move(finding));
  }

  const std::int64_t patience_;
  const double ratio_threshold_;
  std::vector<Loss> losses_;  // [LossValue::id]
  bool is_in_evaluation_ = false;
  // Of the current step in mode GLOBAL.
  std::map<std::string, double> training_metrics_;
  std::vector<std::pair<std::string, std::size_t>> validations_;  // metric, LossValue::id
};

}  // namespace

const RuleDescriptor& overfit_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The validation loss pulls away from the training loss.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kLoss,
      .advice = {"The model learns its training data by heart; on other data it gets worse.",
                 kCauses,
                 "Go back to the checkpoint with the lowest validation loss; regularise, augment, "
                 "or stop earlier."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<Overfit>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
