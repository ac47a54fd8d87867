// GradAccumNormalisation: micro-batches that are averaged or summed the wrong way.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "GradAccumNormalisation";

constexpr std::string_view kDoc =
    R"(Compares the loss that an optimizer step reports with what its micro-batches make of it. With
mean losses l and token counts n of the micro-batches, the right loss is sum(n l) / sum(n). A
reported loss that is off by more than `max_error` on average over `window` optimizer steps warns:
most often it is the mean of the means. It is not judged at steps whose counts are all equal, since
all means agree there, nor without counts. A reported loss within 2% of the sum of two or more
micro-batches' losses is critical: the gradients are too large by their number.

The script saves three things at each optimizer step: the tensor `micro_losses` (`losses_regex`)
and the tensor `micro_tokens` (`tokens_regex`), one element for each micro-batch and with raw
values, and the scalar that it reports (`reported_regex`).

Source: transformers #34191, #35438 and #37766, trl #2175. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"losses_regex", ParameterType::kString, "(^|/)micro_(batch_)?loss(es)?$",
     "Pattern of the name of the micro-batches' losses."},
    {"tokens_regex", ParameterType::kString, "(^|/)micro_(batch_)?(tokens|token_counts)$",
     "Pattern of the name of the micro-batches' token counts."},
    {"reported_regex", ParameterType::kString,
     "^scalar/(.*/)?(reported_|train_|training_)?loss$|^reported_loss$",
     "Pattern of the name of the reported loss."},
    {"max_error", ParameterType::kFloat, "0.01", "Average relative error that warns.", 0.0},
    {"window", ParameterType::kInt, "10", "Optimizer steps that are averaged.", 1},
}};

constexpr std::array<std::string_view, 3> kCauses = {
    "the mean over micro-batches of their mean losses: short ones count as much as long ones",
    "no division by the number of micro-batches",
    "a loss function that ignores the number of items which the trainer gives it",
};

constexpr double kSumRoom = 0.02;

class GradAccumNormalisation : public TensorRule {
 public:
  explicit GradAccumNormalisation(const Parameters& parameters)
      : TensorRule({.regexes = {parameters.get_string("losses_regex")}}),
        max_error_(parameters.get_float("max_error")),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        tokens_(parameters.get_string("tokens_regex")),
        reported_(parameters.get_string("reported_regex")) {}

  std::string missing_input() const override {
    return has_reported_ ? "" : "it needs the reported loss too, see its reported_regex";
  }

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::optional<double> reported = reported_.value(worker);
    if (!reported || !std::isfinite(*reported)) return;
    has_reported_ = true;
    const std::optional<TensorValues> losses = values_of(worker, row);
    if (!losses) {
      note_missing_values();
      return;
    }
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), *reported, findings};
    State& state = states_.at(worker, row.tensor, step.mode);
    if (judge_sum(point, losses->elements, state)) return;
    const StatisticsRow* counts = tokens_.row(worker);
    if (counts == nullptr) return;
    if (counts->statistics.min == counts->statistics.max) return;
    const std::optional<TensorValues> tokens = values_of(worker, *counts);
    if (!tokens || tokens->elements.size() != losses->elements.size()) return;
    judge_mean(point, losses->elements, tokens->elements, state);
  }

 private:
  struct State {
    RollingWindow errors;
    Persistence summed;
    Persistence wrong;
  };

  // Whether the reported loss is the sum.
  static bool judge_sum(const ScalarPoint& point, const std::vector<double>& losses, State& state) {
    double sum = 0.0;
    double largest = 0.0;
    for (const double loss : losses) {
      sum += loss;
      largest = std::fmax(largest, std::abs(loss));
    }
    const double room = kSumRoom * std::abs(sum);
    // A mean is at most the largest, so what is close to it may well be one.
    const bool is_sum =
        losses.size() > 1 && std::abs(point.value - sum) <= room && std::abs(sum) > largest + room;
    if (!state.summed.tell(is_sum, 1, point.is_judged())) return is_sum;
    point.add(
        "loss", point.value, sum, Severity::kCritical,
        fmt::format("The reported loss of {:.4g} at step {} is the sum over {} micro-batches, "
                    "not their average.",
                    point.value, point.step.step, losses.size()));
    return true;
  }

  void judge_mean(const ScalarPoint& point, const std::vector<double>& losses,
                  const std::vector<double>& tokens, State& state) const {
    double weighted = 0.0;
    double total = 0.0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      weighted += tokens[i] * losses[i];
      total += tokens[i];
    }
    const double right = weighted / total;
    const double error = std::abs(point.value - right) / std::abs(right);
    if (!std::isfinite(error)) return;
    if (state.errors.size() == 0) state.errors = RollingWindow(window_);
    state.errors.push(error);
    if (!state.errors.is_full()) return;
    const double mean = state.errors.mean();
    if (!state.wrong.tell(mean > max_error_, 1, point.is_judged())) return;
    point.add("error", mean, max_error_, Severity::kWarning,
              fmt::format("The reported loss is off by {:.3g} % on average over {} optimizer steps "
                          "up to step {}: {:.4g} there, where the micro-batches' tokens make it "
                          "{:.4g}.",
                          100.0 * mean, window_, point.step.step, point.value, right));
  }

  const double max_error_;
  const std::size_t window_;
  NamedScalar tokens_;
  NamedScalar reported_;
  bool has_reported_ = false;
  PerSeries<State> states_;
};

}  // namespace

const RuleDescriptor& grad_accum_normalisation_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Micro-batches that are averaged or summed the wrong way.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kGradient,
      .advice = {"Accumulated gradients are then not those of the whole batch, and results depend "
                 "on how it was cut into pieces.",
                 kCauses,
                 "Divide the summed loss of all micro-batches by the number of all their tokens; "
                 "compare a step with one of the undivided batch."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<GradAccumNormalisation>,
  };
  return kDescriptor;
}

}  // namespace tensortap
