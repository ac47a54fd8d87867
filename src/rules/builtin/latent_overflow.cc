// LatentOverflow: autoencoders of diffusion models that leave the range of float16.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LatentOverflow";

constexpr std::string_view kDoc =
    R"(Looks at the autoencoder of a latent diffusion model, in every mode. Outputs of its modules
(`tensor_regex`) whose largest magnitude exceeds `max_abs`, half of float16's largest number, warn;
elements that are not finite are critical. Latents (`latent_regex`, saved after the multiplication
by the scaling factor) warn when their standard deviation lies outside of `min_latent_std` to
`max_latent_std`. Decoded previews (`preview_regex`) warn when their standard deviation is below
`min_preview_std`: they are black, or of one colour. A latent or preview of one element counts as
the standard deviation itself. Each is told once until it is well again.

Latents and previews are saved by the script, as `latents` and `preview`.

Source: diffusers #4820, kohya_ss #2674, sliders #30: SDXL's autoencoder overflows in float16, and
images come out black. The limits for latents and previews are ours.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"tensor_regex", ParameterType::kString,
     "(?i)(vae|autoencoder|first_stage_model).*_output_\\d+$|"
     "^(encoder|decoder)\\.(down|mid|up).*_output_\\d+$",
     "Pattern of names of the autoencoder's outputs."},
    {"latent_regex", ParameterType::kString, "(^|/)(scaled_)?latents?(_std)?$",
     "Pattern of names of latents after scaling, or of their standard deviation."},
    {"preview_regex", ParameterType::kString, "(^|/)(decoded_)?previews?(_std)?$",
     "Pattern of names of decoded images, or of their standard deviation."},
    {"max_abs", ParameterType::kFloat, "32752", "Magnitude of an activation that warns.", 0.0},
    {"min_latent_std", ParameterType::kFloat, "0.1", "Standard deviation of latents, at least.",
     0.0},
    {"max_latent_std", ParameterType::kFloat, "10", "Standard deviation of latents, at most.", 0.0},
    {"min_preview_std", ParameterType::kFloat, "0.001", "Standard deviation of previews, at least.",
     0.0},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "an autoencoder that was trained in float32 runs in float16",
    "a scaling factor that is missing, or that of another model",
    "a denoiser whose output has become NaN or constant",
    "images that were not scaled to the range that the encoder expects",
};

class LatentOverflow : public TensorRule {
 public:
  explicit LatentOverflow(const Parameters& parameters)
      : TensorRule({.regexes = {parameters.get_string("tensor_regex"),
                                parameters.get_string("latent_regex"),
                                parameters.get_string("preview_regex")},
                    .is_training_only = false}),
        latents_({}, {parameters.get_string("latent_regex")}),
        previews_({}, {parameters.get_string("preview_regex")}),
        max_abs_(parameters.get_float("max_abs")),
        min_latent_std_(parameters.get_float("min_latent_std")),
        max_latent_std_(parameters.get_float("max_latent_std")),
        min_preview_std_(parameters.get_float("min_preview_std")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), 0.0, findings};
    State& state = states_.at(worker, row.tensor, step.mode);
    judge_finite(point, state);
    if (row.statistics.finite_count() == 0) return;
    if (latents_.selects(worker, row.tensor)) {
      const double std = spread(row);
      const bool is_low = std < min_latent_std_;
      judge_spread(point, std, is_low || std > max_latent_std_,
                   is_low ? min_latent_std_ : max_latent_std_, state);
    } else if (previews_.selects(worker, row.tensor)) {
      const double std = spread(row);
      judge_spread(point, std, std < min_preview_std_, min_preview_std_, state);
    } else {
      judge_range(point, state);
    }
  }

 private:
  struct State {
    Persistence non_finite;
    Persistence ill;
  };

  static double spread(const StatisticsRow& row) {
    return single_value(row).value_or(statistic_value(row.statistics, StatisticId::kStd));
  }

  static void judge_finite(const ScalarPoint& point, State& state) {
    const Statistics& statistics = point.row.statistics;
    const std::uint64_t count = statistics.count - statistics.finite_count();
    if (!state.non_finite.tell(count > 0, 1, point.is_judged())) return;
    point.add("non_finite_count", static_cast<double>(count), 0.0, Severity::kCritical,
              fmt::format("{} of {} elements of {} are not finite at step {}.", count,
                          statistics.count, point.name, point.step.step));
  }

  void judge_range(const ScalarPoint& point, State& state) const {
    const double abs_max = statistic_value(point.row.statistics, StatisticId::kAbsMax);
    if (!state.ill.tell(abs_max > max_abs_, 1, point.is_judged())) return;
    point.add(
        "abs_max", abs_max, max_abs_, Severity::kWarning,
        fmt::format("The largest magnitude of {} is {:.6g} at step {}: float16 ends at 65504.",
                    point.name, abs_max, point.step.step));
  }

  static void judge_spread(const ScalarPoint& point, double std, bool is_ill, double limit,
                           State& state) {
    if (!state.ill.tell(is_ill, 1, point.is_judged())) return;
    point.add("std", std, limit, Severity::kWarning,
              fmt::format("The standard deviation of {} is {:.3g} at step {}, {} {:g}.", point.name,
                          std, point.step.step, std < limit ? "below" : "above", limit));
  }

  TensorSelector latents_;
  TensorSelector previews_;
  const double max_abs_;
  const double min_latent_std_;
  const double max_latent_std_;
  const double min_preview_std_;
  PerSeries<State> states_;
};

}  // namespace

const RuleDescriptor& latent_overflow_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Autoencoders of diffusion models that leave the range of float16.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kPrecision,
      .advice = {"Latents that overflow make the loss NaN and the images black, though the "
                 "denoiser may be in order.",
                 kCauses,
                 "Run the autoencoder in bfloat16 or float32, or take one that was repaired for "
                 "float16; check the scaling factor."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<LatentOverflow>,
  };
  return kDescriptor;
}

}  // namespace tensortap
