// ZeroAdvantageGroups: groups of answers whose rewards are all equal give no gradient.
#include <array>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ZeroAdvantageGroups";

constexpr std::string_view kDoc =
    R"(With advantages relative to a group (GRPO and its kin), a group in which all answers earn
the same reward gives no gradient. Looks at the share of such groups that the trainer logs
(`tensor_regex`; TRL: `frac_reward_zero_std`) and fires when it is

- `critical_share` or more at `critical_updates` updates in a row (critical);
- `warn_share` or more on average over the last `window` updates (warning).

The mean reward, where it is logged, goes into the message: it tells all wrong from all right.

Source: TRL's GRPO trainer, in which 1.0 means no signal. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"tensor_regex", ParameterType::kString, "^scalar/(.*/)?frac_reward_zero_std$",
     "Pattern of the name of the share of groups without spread."},
    {"reward_regex", ParameterType::kString, "^scalar/(.*/)?rewards?(/mean)?$",
     "Pattern of the name of the mean reward, for the message."},
    {"warn_share", ParameterType::kFloat, "0.8", "Mean share from which the rule warns.", 0.0, 1.0},
    {"window", ParameterType::kInt, "20", "Updates in that mean.", 1},
    {"critical_share", ParameterType::kFloat, "1", "Share that is critical.", 0.0, 1.0},
    {"critical_updates", ParameterType::kInt, "3", "Updates in a row with it.", 1},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a reward function that always gives the same (a parser that never matches)",
    "tasks that are far too hard or far too easy for the model",
    "sampling at so low a temperature that all answers of a group are equal",
    "a policy whose entropy has collapsed",
};

class ZeroAdvantageGroups : public ScalarRule {
 public:
  explicit ZeroAdvantageGroups(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("tensor_regex")}}),
        warn_share_(parameters.get_float("warn_share")),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        critical_share_(parameters.get_float("critical_share")),
        critical_updates_(parameters.get_int("critical_updates")),
        reward_(parameters.get_string("reward_regex")) {}

 protected:
  void point(const ScalarPoint& point) override {
    Share& share = shares_.at(point.worker, point.row.tensor, point.step.mode);
    if (share.window.size() == 0) share.window = RollingWindow(window_);
    share.window.push(point.value);
    const bool is_total = point.value >= critical_share_;
    if (share.total.tell(is_total, critical_updates_, point.is_judged())) {
      point.add("mean", point.value, critical_share_, Severity::kCritical,
                fmt::format("No group of answers had any spread of rewards at {} updates in a row "
                            "up to step {}: there is no gradient.{}",
                            critical_updates_, point.step.step, reward_text(point.worker)));
    }
    const double mean = share.window.mean();
    // A hair of tolerance, since a mean of twenty 0.8 need not be 0.8.
    const bool is_high = share.window.is_full() && mean >= warn_share_ - 1e-9;
    if (share.high.tell(is_high, 1, point.is_judged())) {
      point.add("mean", mean, warn_share_, Severity::kWarning,
                fmt::format("{:.0f} % of the groups had no spread of rewards on average over the "
                            "last {} updates up to step {}.{}",
                            100.0 * mean, window_, point.step.step, reward_text(point.worker)));
    }
  }

 private:
  struct Share {
    RollingWindow window;
    Persistence total;
    Persistence high;
  };

  std::string reward_text(const WorkerStep& worker) {
    const std::optional<double> reward = reward_.value(worker);
    if (!reward) return "";
    if (*reward <= 0.0) return fmt::format(" The mean reward is {:g}: all wrong.", *reward);
    return fmt::format(" The mean reward is {:g}.", *reward);
  }

  const double warn_share_;
  const std::size_t window_;
  const double critical_share_;
  const std::int64_t critical_updates_;
  NamedScalar reward_;
  PerSeries<Share> shares_;
};

}  // namespace

const RuleDescriptor& zero_advantage_groups_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Groups of answers whose rewards are all equal, so that nothing is learnt.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice = {"Where all answers of a group earn the same, their advantages are zero and the "
                 "compute is spent for nothing.",
                 kCauses,
                 "Print a few answers with their rewards. Then choose tasks that the model solves "
                 "sometimes, or filter the groups without spread."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<ZeroAdvantageGroups>,
  };
  return kDescriptor;
}

}  // namespace tensortap
