// PolicyEntropyCollapse: a policy that has stopped to explore.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "PolicyEntropyCollapse";

constexpr std::string_view kDoc =
    R"(Compares a policy's entropy with its reference, the mean of its first 5 updates. Fires when
it lies below `collapsed_share` of the reference at `persist` updates in a row (critical), and
when more than `burnt_share` of it is gone within the first `early_updates` updates (warning).

Looks at scalars that `tensor_regex` matches (names of SB3, TRL, verl). SB3's `entropy_loss` is
the negative entropy and is turned round. For continuous policies the differential entropy has no
zero; where the mean standard deviation is logged (`std_regex`; SB3: `train/std`), it is judged
instead. A reference that is not positive is not judged. Silent with `anneal`, which says that the
entropy is meant to go, and while a logged success rate (`success_regex`) is above `success`.

Source: arXiv 2505.22617: in reinforcement learning of language models most of the entropy is used
up in the first 200 steps, and the reward saturates with it. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 9> kParameters = {{
    {"tensor_regex", ParameterType::kString, "^scalar/(.*/)?(policy_)?entropy(_loss|_avg|/mean)?$",
     "Pattern of names of entropies of a policy."},
    {"std_regex", ParameterType::kString, "^scalar/(train/|policy/)?(action_)?std$",
     "Pattern of names of the mean standard deviation of a continuous policy."},
    {"success_regex", ParameterType::kString, "^scalar/(.*/)?success_rate$",
     "Pattern of the name of a success rate."},
    {"success", ParameterType::kFloat, "0.95", "Success rate above which the rule is silent.", 0.0},
    {"collapsed_share", ParameterType::kFloat, "0.1",
     "Share of the reference below which a policy has collapsed.", 0.0, 1.0},
    {"persist", ParameterType::kInt, "3", "Updates in a row below it.", 1},
    {"burnt_share", ParameterType::kFloat, "0.7",
     "Share of the reference whose early loss is a warning.", 0.0, 1.0},
    {"early_updates", ParameterType::kInt, "200", "Updates that count as early.", 1},
    {"anneal", ParameterType::kBool, "false", "The entropy is meant to fall."},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "no entropy bonus, or one that is too small",
    "a learning rate that is too high",
    "clipping that lets likely answers grow and holds unlikely ones down",
    "too many updates on the same samples",
};

constexpr int kReferencePoints = 5;

class PolicyEntropyCollapse : public ScalarRule {
 public:
  explicit PolicyEntropyCollapse(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("tensor_regex"),
                                parameters.get_string("std_regex")}}),
        success_limit_(parameters.get_float("success")),
        collapsed_share_(parameters.get_float("collapsed_share")),
        persist_(parameters.get_int("persist")),
        burnt_share_(parameters.get_float("burnt_share")),
        early_updates_(parameters.get_int("early_updates")),
        is_annealed_(parameters.get_bool("anneal")),
        deviations_({}, {parameters.get_string("std_regex")}),
        deviation_(parameters.get_string("std_regex")),
        success_(parameters.get_string("success_regex")) {}

 protected:
  void point(const ScalarPoint& point) override {
    const bool is_deviation = deviations_.selects(point.worker, point.row.tensor);
    if (!is_deviation && deviation_.is_known(point.worker)) return;
    Policy& policy = policies_.at(point.worker, point.row.tensor, point.step.mode);
    ++policy.updates;
    if (policy.updates <= kReferencePoints) {
      policy.reference += point.value / kReferencePoints;
      return;
    }
    const bool is_negated = policy.reference < 0.0 && point.name.ends_with("entropy_loss");
    const double reference = is_negated ? -policy.reference : policy.reference;
    const double entropy = is_negated ? -point.value : point.value;
    if (reference <= 0.0 || is_annealed_) return;
    const bool is_successful = success_.value(point.worker).value_or(0.0) > success_limit_;
    const double limit = collapsed_share_ * reference;
    const bool is_collapsed = entropy < limit && !is_successful;
    if (policy.collapse.tell(is_collapsed, persist_, point.is_judged())) {
      point.add(
          "mean", entropy, limit, Severity::kCritical,
          fmt::format("{} fell to {:.3g} at step {}, below {:g} % of the {:.3g} that it "
                      "began with: the policy has stopped to explore.",
                      point.name, entropy, point.step.step, 100.0 * collapsed_share_, reference));
    }
    const double burnt_limit = (1.0 - burnt_share_) * reference;
    const bool is_burnt = entropy < burnt_limit && !is_successful;
    if (policy.updates > early_updates_ || policy.is_burn_told) return;
    if (!is_burnt || !point.is_judged()) return;
    policy.is_burn_told = true;
    point.add("mean", entropy, burnt_limit, Severity::kWarning,
              fmt::format("{} fell to {:.3g} at step {}: more than {:g} % of the {:.3g} that it "
                          "began with is gone after {} updates.",
                          point.name, entropy, point.step.step, 100.0 * burnt_share_, reference,
                          policy.updates));
  }

 private:
  struct Policy {
    std::int64_t updates = 0;
    double reference = 0.0;
    Persistence collapse;
    bool is_burn_told = false;
  };

  const double success_limit_;
  const double collapsed_share_;
  const std::int64_t persist_;
  const double burnt_share_;
  const std::int64_t early_updates_;
  const bool is_annealed_;
  TensorSelector deviations_;
  NamedScalar deviation_;
  NamedScalar success_;
  PerSeries<Policy> policies_;
};

}  // namespace

const RuleDescriptor& policy_entropy_collapse_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A policy whose entropy is gone, so that it explores no more.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"A policy without entropy always does the same; it cannot find anything better, "
                 "and the reward saturates.",
                 kCauses,
                 "Raise the entropy bonus or lower the learning rate, and go back to a checkpoint "
                 "from before the fall."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<PolicyEntropyCollapse>,
  };
  return kDescriptor;
}

}  // namespace tensortap
