// RolloutTrainerMismatch: a generation engine whose probabilities are not the trainer's.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "RolloutTrainerMismatch";

constexpr std::string_view kDoc =
    R"(Judges what trainers log on the probabilities that generation engine and trainer give the
same tokens with the same weights. Warns, at 3 points in a row, when the mean absolute difference
of log probabilities (`difference_regex`) exceeds 0.05, the mean ratio (`ratio_regex`) leaves
[0.9, 1.1], or the correlation (`correlation_regex`) falls below 0.98. A KL between the two
(`kl_regex`) above 0.05 at 3 points in a row is critical. Ratios per sequence are far from 1 by
themselves: `is_sequence_ratio` leaves them out.

Source: verl PR #2953, #2996, #3694; TRL PR #3867, #4772; ms-swift PR #6678. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"difference_regex", ParameterType::kString,
     "^scalar/(.*/)?(sampling_logp_difference/mean|rollout_(log)?probs_diff_mean)$",
     "Pattern of names of mean absolute differences of log probabilities."},
    {"ratio_regex", ParameterType::kString,
     "^scalar/(.*/)?(importance_sampling_ratio/mean|rollout_is_mean)$",
     "Pattern of names of mean ratios of probabilities."},
    {"correlation_regex", ParameterType::kString, "^scalar/(.*/)?rollout_actor_probs_pearson_corr$",
     "Pattern of names of correlations of probabilities."},
    {"kl_regex", ParameterType::kString, "^scalar/(.*/)?(rollout_(k3_)?kl|mismatch_k3_kl)$",
     "Pattern of names of the KL between the two."},
    {"is_sequence_ratio", ParameterType::kBool, "false",
     "The ratios are those of whole sequences."},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "temperature or other sampling settings that are not applied to the logged probabilities",
    "half or eighth precision in the engine, above all in its output head",
    "weights that reach the engine late or incompletely",
    "a kernel that behaves otherwise in the engine",
};

class RolloutTrainerMismatch : public ScalarRule {
 public:
  explicit RolloutTrainerMismatch(const Parameters& parameters)
      : ScalarRule({.regexes = {parameters.get_string("difference_regex"),
                                parameters.get_string("ratio_regex"),
                                parameters.get_string("correlation_regex"),
                                parameters.get_string("kl_regex")}}),
        ratios_({}, {parameters.get_string("ratio_regex")}),
        correlations_({}, {parameters.get_string("correlation_regex")}),
        kls_({}, {parameters.get_string("kl_regex")}),
        is_sequence_ratio_(parameters.get_bool("is_sequence_ratio")) {}

 protected:
  void point(const ScalarPoint& point) override {
    const auto is_in = [&](TensorSelector& selector) {
      return selector.selects(point.worker, point.row.tensor);
    };
    double limit = kMaxDifference;
    bool is_off = point.value > limit;
    Severity severity = Severity::kWarning;
    if (is_in(ratios_)) {
      limit = point.value > 1.0 ? kMaxRatio : kMinRatio;
      is_off = !is_sequence_ratio_ && (point.value > kMaxRatio || point.value < kMinRatio);
    } else if (is_in(correlations_)) {
      limit = kMinCorrelation;
      is_off = point.value < limit;
    } else if (is_in(kls_)) {
      severity = Severity::kCritical;
    }
    Persistence& mismatch = mismatches_.at(point.worker, point.row.tensor, point.step.mode);
    if (!mismatch.tell(is_off, kPersist, point.is_judged())) return;
    point.add("mean", point.value, limit, severity,
              fmt::format("{} is {:.4g} at step {}, beyond {:g} for {} points: the engine does not "
                          "generate from the policy that is trained.",
                          point.name, point.value, point.step.step, limit, kPersist));
  }

 private:
  static constexpr double kMaxDifference = 0.05;
  static constexpr double kMinRatio = 0.9;
  static constexpr double kMaxRatio = 1.1;
  static constexpr double kMinCorrelation = 0.98;
  static constexpr std::int64_t kPersist = 3;

  TensorSelector ratios_;
  TensorSelector correlations_;
  TensorSelector kls_;
  const bool is_sequence_ratio_;
  PerSeries<Persistence> mismatches_;
};

}  // namespace

const RuleDescriptor& rollout_trainer_mismatch_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A generation engine whose probabilities are not the trainer's.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice = {"Answers that come from another policy than the one that is trained make its "
                 "gradient biased, and the training collapses late and without warning.",
                 kCauses,
                 "Compare both probabilities on a fresh rollout before any update, and correct "
                 "with truncated importance sampling meanwhile."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<RolloutTrainerMismatch>,
  };
  return kDescriptor;
}

}  // namespace tensortap
