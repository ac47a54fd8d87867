// CompletionTruncation: answers that are cut off, or that only grow longer.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "CompletionTruncation";

constexpr std::string_view kDoc =
    R"(Fires when the share of answers cut off at the token limit (`clipped_regex`; TRL, verl)
exceeds `max_share` on average over the last 20 updates, and when the mean length of answers
(`length_regex`) has more than doubled since its first 5 updates, on average over the last 5,
while the reward (`reward_regex`) has not risen by more than a tenth: length is being gamed.

Source: TRL's GRPO trainer logs `completions/clipped_ratio`, up to .91 in public trainer states.
The limits are ours.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"clipped_regex", ParameterType::kString,
     "^scalar/(.*/)?(completions/clipped_ratio|response_length/clip_ratio)$",
     "Pattern of names of the share of answers that are cut off."},
    {"length_regex", ParameterType::kString,
     "^scalar/(.*/)?(completions/mean_length|response_length/mean)$",
     "Pattern of names of the mean length of answers."},
    {"reward_regex", ParameterType::kString, "^scalar/(.*/)?rewards?(/mean)?$",
     "Pattern of the name of the mean reward."},
    {"max_share", ParameterType::kFloat, "0.5", "Mean share of answers cut off that is tolerated.",
     0.0, 1.0},
}};

constexpr std::array<std::string_view, 3> kCauses = {
    "a limit on new tokens that is too small for the task",
    "a policy that has lost its end-of-sequence token",
    "a reward that grows with length",
};

class CompletionTruncation : public ScalarRule {
 public:
  explicit CompletionTruncation(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("clipped_regex"),
                                parameters.get_string("length_regex")}}),
        max_share_(parameters.get_float("max_share")),
        lengths_({}, {parameters.get_string("length_regex")}),
        reward_(parameters.get_string("reward_regex")) {}

 protected:
  void point(const ScalarPoint& point) override {
    Answers& answers = answers_.at(point.worker, point.row.tensor, point.step.mode);
    lengths_.selects(point.worker, point.row.tensor) ? judge_length(point, answers)
                                                     : judge_share(point, answers);
  }

 private:
  static constexpr std::size_t kWindow = 20;
  static constexpr std::size_t kEarly = 5;

  struct Answers {
    RollingWindow shares{kWindow};
    Persistence clipped;
    RollingWindow lengths{kEarly};
    RollingWindow rewards{kEarly};
    double early_length = 0.0;  // 0 while there is none
    double early_reward = 0.0;
    Persistence grown;
  };

  void judge_share(const ScalarPoint& point, Answers& answers) const {
    answers.shares.push(point.value);
    const double mean = answers.shares.mean();
    const bool is_high = answers.shares.is_full() && mean > max_share_;
    if (!answers.clipped.tell(is_high, 1, point.is_judged())) return;
    point.add("mean", mean, max_share_, Severity::kWarning,
              fmt::format("{:.0f} % of the answers were cut off on average over {} updates up to "
                          "step {} ({}).",
                          100.0 * mean, kWindow, point.step.step, point.name));
  }

  void judge_length(const ScalarPoint& point, Answers& answers) {
    const std::optional<double> reward = reward_.value(point.worker);
    if (!reward || !std::isfinite(*reward)) return;
    answers.lengths.push(point.value);
    answers.rewards.push(*reward);
    if (!answers.lengths.is_full()) return;
    const double length = answers.lengths.mean();
    const double gained = answers.rewards.mean() - answers.early_reward;
    if (answers.early_length == 0.0) {
      answers.early_length = length;
      answers.early_reward = answers.rewards.mean();
      return;
    }
    const bool is_gamed =
        length > 2.0 * answers.early_length && gained <= 0.1 * std::abs(answers.early_reward);
    if (!answers.grown.tell(is_gamed, 1, point.is_judged())) return;
    point.add("mean", length, 2.0 * answers.early_length, Severity::kWarning,
              fmt::format("{} has grown from {:.4g} to {:.4g} at step {}, and the reward has not: "
                          "length is being gamed.",
                          point.name, answers.early_length, length, point.step.step));
  }

  const double max_share_;
  TensorSelector lengths_;
  NamedScalar reward_;
  PerSeries<Answers> answers_;
};

}  // namespace

const RuleDescriptor& completion_truncation_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Answers that are cut off, or that only grow longer.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice =
          {"An answer that is cut off is judged for what it does not say; its reward is noise.",
           kCauses,
           "Read a few answers that were cut off, and raise the limit or mask them out of the "
           "loss."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<CompletionTruncation>,
  };
  return kDescriptor;
}

}  // namespace tensortap
