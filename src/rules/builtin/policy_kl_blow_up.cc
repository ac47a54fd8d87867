// PolicyKLBlowUp: a policy that runs away from the one that gathered the data, or from its
// reference.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "PolicyKLBlowUp";

constexpr std::string_view kDoc =
    R"(Judges the KL divergences that trainers of reinforcement learning log:

- between the policy and the one that gathered the data (`policy_regex`): above 1.5 `target_kl`
  where that is declared; else above 10 times the median of the last 50 points (20 at least) and
  above `min_kl`;
- between the policy and its reference (`reference_regex`): above `kl_limit` and risen over the
  last 10 points (critical);
- either one below `negative_limit` at 5 points in a row: the estimator is broken;
- the share of clipped ratios (`clip_regex`) above `clip_limit` at 5 points in a row.

Training steps only; several workers are judged one by one.

Source: Stable-Baselines3 ends an update at 1.5 target_kl; trl #204, #351, #1857 and PRs #239,
#352 on a KL that grows or turns negative. The other limits are ours.)";

constexpr std::array<ParameterDescriptor, 8> kParameters = {{
    {"policy_regex", ParameterType::kString, "^scalar/(.*/)?(approx_?kl(_avg)?|ppo_kl)$",
     "Pattern of names of the KL to the policy that gathered the data."},
    {"reference_regex", ParameterType::kString,
     "^scalar/(objective/|train/|actor/)?(kl|kl_loss|reward_kl_penalty|ref_kl)$",
     "Pattern of names of the KL to the reference model, in nats per sequence."},
    {"clip_regex", ParameterType::kString,
     "^scalar/(.*/)?(pg_|policy_)?(clip_?frac(tion)?(_avg)?|clip_ratio/region_mean)$",
     "Pattern of names of the share of clipped ratios."},
    {"target_kl", ParameterType::kFloat, "", "The target that the trainer has, in nats.", 0.0,
     1e308, true},
    {"min_kl", ParameterType::kFloat, "0.02", "Without target_kl, KL that is always fine.", 0.0},
    {"kl_limit", ParameterType::kFloat, "10", "KL to the reference that is still fine, in nats.",
     0.0},
    {"negative_limit", ParameterType::kFloat, "-0.05", "KL below which the estimator is broken.",
     -1e308, 0.0},
    {"clip_limit", ParameterType::kFloat, "0.5", "Share of clipped ratios that is tolerated.", 0.0,
     1.0},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high, or too many updates on the same samples",
    "a KL coefficient that is zero or too small",
    "generation at another temperature, with other padding or with dropout than the scoring",
    "a reward that can be gamed",
};

constexpr double kTargetRatio = 1.5;
constexpr double kMedianRatio = 10.0;
constexpr std::size_t kMinPoints = 20;
constexpr std::int64_t kPersist = 5;

class PolicyKLBlowUp : public ScalarRule {
 public:
  explicit PolicyKLBlowUp(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("policy_regex"),
                                parameters.get_string("reference_regex"),
                                parameters.get_string("clip_regex")}}),
        has_target_(parameters.is_set("target_kl")),
        target_kl_(has_target_ ? parameters.get_float("target_kl") : 0.0),
        min_kl_(parameters.get_float("min_kl")),
        kl_limit_(parameters.get_float("kl_limit")),
        negative_limit_(parameters.get_float("negative_limit")),
        clip_limit_(parameters.get_float("clip_limit")),
        to_old_policy_({}, {parameters.get_string("policy_regex")}),
        to_reference_({}, {parameters.get_string("reference_regex")}) {}

 protected:
  void point(const ScalarPoint& point) override {
    Kl& kl = kls_.at(point.worker, point.row.tensor, point.step.mode);
    if (to_old_policy_.selects(point.worker, point.row.tensor)) {
      judge_old_policy(point, kl);
    } else if (to_reference_.selects(point.worker, point.row.tensor)) {
      judge_reference(point, kl);
    } else {
      judge_clipping(point, kl);
      return;
    }
    if (!kl.negative.tell(point.value < negative_limit_, kPersist, point.is_judged())) return;
    point.add("mean", point.value, negative_limit_, Severity::kWarning,
              fmt::format("{} is {:.3g} at step {}, negative for {} points: its estimator is "
                          "broken; check sampling temperature, padding and dropout.",
                          point.name, point.value, point.step.step, kPersist));
  }

 private:
  struct Kl {
    RollingWindow past{50};
    RollingWindow newest{11};
    Persistence high;
    Persistence negative;
  };

  void judge_old_policy(const ScalarPoint& point, Kl& kl) const {
    double limit = kTargetRatio * target_kl_;
    if (!has_target_) {
      const bool is_known = kl.past.size() >= kMinPoints;
      limit = is_known ? std::max(kMedianRatio * kl.past.median(), min_kl_) : HUGE_VAL;
    }
    if (!(point.value > limit)) {
      kl.past.push(point.value);
      return;
    }
    if (!point.is_judged()) return;
    point.add("mean", point.value, limit, Severity::kWarning,
              fmt::format("{} rose to {:.3g} at step {}, above {:.3g}: the update went far from "
                          "the policy that gathered the data.",
                          point.name, point.value, point.step.step, limit));
  }

  void judge_reference(const ScalarPoint& point, Kl& kl) const {
    kl.newest.push(point.value);
    const bool has_risen = kl.newest.is_full() && point.value > kl.newest[0];
    const bool is_high = point.value > kl_limit_ && has_risen;
    if (!kl.high.tell(is_high, 1, point.is_judged())) return;
    point.add("mean", point.value, kl_limit_, Severity::kCritical,
              fmt::format("{} is {:.3g} at step {}, above {:g} and rising from {:.3g} ten points "
                          "before: the policy runs away from its reference.",
                          point.name, point.value, point.step.step, kl_limit_, kl.newest[0]));
  }

  void judge_clipping(const ScalarPoint& point, Kl& clip) const {
    if (!clip.high.tell(point.value > clip_limit_, kPersist, point.is_judged())) return;
    point.add("mean", point.value, clip_limit_, Severity::kWarning,
              fmt::format("{} is {:.2g} at step {}: for {} updates most ratios were clipped.",
                          point.name, point.value, point.step.step, kPersist));
  }

  const bool has_target_;
  const double target_kl_;
  const double min_kl_;
  const double kl_limit_;
  const double negative_limit_;
  const double clip_limit_;
  TensorSelector to_old_policy_;
  TensorSelector to_reference_;
  PerSeries<Kl> kls_;
};

}  // namespace

const RuleDescriptor& policy_kl_blow_up_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A policy that runs away from the one that gathered the data, or its reference.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kOptimizer,
      .advice = {"The estimates of policy-gradient methods hold near the policy that gathered the "
                 "data; far from it an update is a guess, and a language model degenerates.",
                 kCauses,
                 "Lower the learning rate or the number of epochs on a batch, set a target KL, and "
                 "read what the model generates."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<PolicyKLBlowUp>,
  };
  return kDescriptor;
}

}  // namespace tensortap
