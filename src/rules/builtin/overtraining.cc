// Overtraining: training goes on although no loss improves any more.
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "rules/loss_rule.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "Overtraining";
constexpr std::string_view kLosses = "losses";
constexpr std::array<std::string_view, 2> kCombinations = {"and", "or"};
constexpr std::array<std::string_view, 2> kDeltaModes = {"absolute", "relative"};

constexpr std::string_view kDoc =
    R"(Counts, for the TRAIN and for the EVAL steps of a loss, the saved steps since it last beat its
best value by more than `delta`. Fires when the counts have reached `patience_train` and
`patience_validation`: both, if the loss occurs in both modes (`combine` or: one of them); the one
there is, if it occurs in one. It fires once, and again only after the loss has improved in between.
A loss that is NaN or infinite does not improve.

In mode GLOBAL a loss counts as a training loss; metrics that name their data set as XGBoost's do
(`train-rmse`, `validation-rmse`) are brought together by their metric.

`delta` is in the loss's unit, or, with `delta_mode` relative, a share of the best value. Looks at
one-element tensors of the collection `losses`. Metrics that are meant to rise (auc, aucpr, map,
ndcg, pre, accuracy) are left out. Several workers: their mean.

Source: SageMaker Debugger's rule of that name, which does not say how the two counts combine;
`combine` and `delta_mode` are additions.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"patience_train", ParameterType::kInt, "5",
     "Saved training steps without improvement that are let pass.", 1},
    {"patience_validation", ParameterType::kInt, "10",
     "Saved validation steps without improvement that are let pass.", 1},
    {"delta", ParameterType::kFloat, "0.01",
     "By how much the best loss must be beaten to count as an improvement.", 0.0},
    {"combine", ParameterType::kString, "and",
     "Whether both counts must be full (and) or one (or)."},
    {"delta_mode", ParameterType::kString, "absolute",
     "Whether delta is absolute or relative to the best loss."},
}};

constexpr std::array<std::string_view, 1> kCollections = {kLosses};

constexpr std::array<std::string_view, 3> kCauses = {
    "the model has converged",
    "a learning rate that has decayed too far, or is too high to settle",
    "a delta that is larger than what the loss can still improve",
};

// How long one loss has not improved.
struct Track {
  bool has_best = false;
  double best = 0.0;
  std::int64_t stall = 0;
};

// What belongs together: the training and the validation values of one loss.
struct Loss {
  std::map<std::string, Track> training;  // by tensor name
  std::map<std::string, Track> validation;
  bool is_told = false;
  bool is_touched = false;
  Finding place;
};

class Overtraining : public LossRule {
 public:
  explicit Overtraining(const Parameters& parameters)
      : LossRule({.collections = {std::string(kLosses)}, .skips_rising = true}),
        patience_train_(parameters.get_int("patience_train")),
        patience_validation_(parameters.get_int("patience_validation")),
        delta_(parameters.get_float("delta")),
        is_or_(choice_of(kName, parameters, "combine", kCombinations) == 1),
        is_relative_(choice_of(kName, parameters, "delta_mode", kDeltaModes) == 1) {}

 protected:
  bool wants(Mode mode) const override { return mode != Mode::kPredict; }

  void take(const StepView& step, const LossValue& now, std::vector<Finding>*) override {
    MetricName name{.metric = now.name};
    if (step.mode == Mode::kGlobal) name = parse_metric_name(now.name);
    const bool is_validation =
        step.mode == Mode::kEval || name.data_set == MetricName::DataSet::kValidation;
    Loss& loss = losses_[name.metric];
    update((is_validation ? loss.validation : loss.training)[now.name], now.value);
    loss.is_touched = true;
    loss.place = finding_at(step, now.name, now.worker);
  }

  void end(const StepView&, std::vector<Finding>* findings) override {
    for (auto& [metric, loss] : losses_) {
      if (!std::exchange(loss.is_touched, false)) continue;
      const bool is_stalled = has_stalled(loss);
      if (!is_stalled) loss.is_told = false;
      if (findings == nullptr || !is_stalled || std::exchange(loss.is_told, true)) continue;
      findings->push_back(describe(loss));
    }
  }

 private:
  void update(Track& track, double value) const {
    if (!track.has_best) {
      track.has_best = std::isfinite(value);
      track.best = value;
      return;
    }
    const double needed = is_relative_ ? delta_ * std::abs(track.best) : delta_;
    if (track.best - value > needed && std::isfinite(value)) {
      track.best = value;
      track.stall = 0;
    } else {
      ++track.stall;
    }
  }

  static std::int64_t shortest(const std::map<std::string, Track>& tracks) {
    std::int64_t stall = tracks.begin()->second.stall;
    for (const auto& [name, track] : tracks) stall = std::min(stall, track.stall);
    return stall;
  }

  bool has_stalled(const Loss& loss) const {
    const bool has_training = !loss.training.empty();
    const bool has_validation = !loss.validation.empty();
    const bool training = has_training && shortest(loss.training) >= patience_train_;
    const bool validation = has_validation && shortest(loss.validation) >= patience_validation_;
    if (is_or_) return training || validation;
    return (training || !has_training) && (validation || !has_validation);
  }

  Finding describe(const Loss& loss) const {
    Finding finding = loss.place;
    const bool is_training = !loss.training.empty() && shortest(loss.training) >= patience_train_;
    finding.statistic = is_training ? "stalled_training_steps" : "stalled_validation_steps";
    const std::map<std::string, Track>& tracks = is_training ? loss.training : loss.validation;
    finding.observed = static_cast<double>(shortest(tracks));
    finding.threshold = static_cast<double>(is_training ? patience_train_ : patience_validation_);
    std::string what;
    const auto append = [&](const std::map<std::string, Track>& of, std::string_view kind) {
      for (const auto& [name, track] : of) {
        what += fmt::format("{}{} {} steps (best {:.4g})", what.empty() ? "" : " and ", track.stall,
                            kind, track.best);
      }
    };
    append(loss.training, "training");
    append(loss.validation, "validation");
    finding.message = fmt::format("{} has not improved by more than {:g}{} for {}, at step {}.",
                                  finding.tensor, is_relative_ ? 100.0 * delta_ : delta_,
                                  is_relative_ ? "%" : "", what, finding.step);
    return finding;
  }

  const std::int64_t patience_train_;
  const std::int64_t patience_validation_;
  const double delta_;
  const bool is_or_;
  const bool is_relative_;
  std::map<std::string, Loss> losses_;  // by metric
};

}  // namespace

const RuleDescriptor& overtraining_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Training goes on although no loss improves any more.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kLoss,
      .advice = {"Further steps cost time and may spoil what has been learned.", kCauses,
                 "Stop the training, or lower the learning rate; keep the checkpoint of the best "
                 "validation loss."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<Overtraining>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
