// ValueFunctionFailure: a value function that predicts nothing, or the opposite.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ValueFunctionFailure";

constexpr std::string_view kDoc =
    R"(Judges the explained variance 1 - Var(R - V) / Var(R) of returns that trainers log
(`variance_regex`; SB3 and verl), from the 20th update on: below 0 at more than half of the last
20 updates is a warning, below -1 at 3 updates in a row critical. A value loss (`loss_regex`)
whose logarithm has a robust z of 6 or more over the last 100 updates, and which is at least 3
times their median, warns.

Source: Stable-Baselines3 logs it for this; TRL's notes on PPO logs: the value loss spikes or
becomes NaN when things go wrong. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 2> kParameters = {{
    {"variance_regex", ParameterType::kString,
     "^scalar/(.*/)?(explained_var(iance)?|vf_explained_var|var_explained)$",
     "Pattern of names of explained variances."},
    {"loss_regex", ParameterType::kString, "^scalar/(.*/)?(value_loss|vf_loss|value_avg)$",
     "Pattern of names of value losses."},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "rewards whose scale changes, or is large, without normalisation",
    "a learning rate of the value function that is too high",
    "a value function that shares too little, or too much, with the policy",
    "advantages computed with the wrong discount or episode ends",
};

class ValueFunctionFailure : public ScalarRule {
 public:
  explicit ValueFunctionFailure(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("variance_regex"),
                                parameters.get_string("loss_regex")}}),
        losses_({}, {parameters.get_string("loss_regex")}) {}

 protected:
  void point(const ScalarPoint& point) override {
    Value& value = values_.at(point.worker, point.row.tensor, point.step.mode);
    losses_.selects(point.worker, point.row.tensor) ? judge_loss(point, value)
                                                    : judge_variance(point, value);
  }

 private:
  static constexpr std::size_t kUpdates = 20;
  static constexpr std::int64_t kBadInARow = 3;

  struct Value {
    RollingWindow negative{kUpdates};  // 1 where the explained variance was below 0
    Persistence useless;
    Persistence opposite;
    NormHistory losses;
  };

  static void judge_variance(const ScalarPoint& point, Value& value) {
    value.negative.push(point.value < 0.0 ? 1.0 : 0.0);
    const bool is_ready = value.negative.is_full();
    const double share = value.negative.mean();
    if (value.useless.tell(is_ready && share > 0.5, 1, point.is_judged())) {
      point.add("negative_share", share, 0.5, Severity::kWarning,
                fmt::format("{} was negative at {:.0f} of the last {} updates up to step {}: the "
                            "value function is worse than a constant.",
                            point.name, share * kUpdates, kUpdates, point.step.step));
    }
    const bool is_opposite = is_ready && point.value < -1.0;
    if (!value.opposite.tell(is_opposite, kBadInARow, point.is_judged())) return;
    point.add("mean", point.value, -1.0, Severity::kCritical,
              fmt::format("{} is {:.3g} at step {}, below -1 for {} updates: the value function "
                          "predicts the opposite.",
                          point.name, point.value, point.step.step, kBadInARow));
  }

  static void judge_loss(const ScalarPoint& point, Value& value) {
    const std::optional<Spike> spike = value.losses.judge(point.value);
    if (!spike || !point.is_judged()) return;
    point.add("mean", point.value, spike->median, Severity::kWarning,
              fmt::format("{} jumped to {:.4g} at step {}, {:.1f} times its median (robust z "
                          "{:.1f}).",
                          point.name, point.value, point.step.step, point.value / spike->median,
                          spike->z));
  }

  TensorSelector losses_;
  PerSeries<Value> values_;
};

}  // namespace

const RuleDescriptor& value_function_failure_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A value function that predicts nothing, or the opposite.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kLoss,
      .advice =
          {"Advantages are returns minus values: when the values mean nothing, the policy follows "
           "noise.",
           kCauses,
           "Normalise rewards or returns, and look at the value loss beside the reward scale."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<ValueFunctionFailure>,
  };
  return kDescriptor;
}

}  // namespace tensortap
