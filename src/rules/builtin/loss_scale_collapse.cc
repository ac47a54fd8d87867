// LossScaleCollapse: float16 training whose loss scale falls and falls.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LossScaleCollapse";
constexpr std::string_view kCollection = "loss_scaling";

constexpr std::string_view kDoc =
    R"(Fires when the loss scale of a mixed-precision training

- has fallen to `min_scale` or below (critical); a scale that never was above it, as with a scaler
  that is switched off, is let be;
- was reduced `max_reductions` times or more within the last `reduction_window` steps (warning);
- or when more than `skipped_share` of the last 200 steps were skipped, from step 200 on
  (warning).

Looks at the scalars `loss_scale` and `skipped_step` of the collection `loss_scaling` and at what
`scale_regex` matches. Training steps only; several workers are judged one by one. Each of the
three is told once until it is over.

Source: PyTorch's GradScaler starts at 65536, halves at an overflow and doubles after 2000 clean
steps; reports of scales that halve to the minimum: DeepSpeed #931, transformers #4692,
Chinese-LLaMA-Alpaca #534.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"scale_regex", ParameterType::kString, "^scalar/(.*/)?(loss|grad|amp)_?scale$",
     "Pattern of names of scalars that hold a loss scale."},
    {"min_scale", ParameterType::kFloat, "1", "Scale at which a training has no range left.", 0.0},
    {"max_reductions", ParameterType::kInt, "4", "Reductions within the window that fire.", 1},
    {"reduction_window", ParameterType::kInt, "20", "Saved steps in which reductions count.", 2},
    {"skipped_share", ParameterType::kFloat, "0.1", "Share of skipped steps that is tolerated.",
     0.0, 1.0},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a model that was trained in bfloat16 and is now run in float16",
    "activations or a loss that exceed float16's 65504",
    "NaN or infinities in the data or in a layer, which no scale can cure",
    "a learning rate that is too high",
};

constexpr std::size_t kSkipWindow = 200;

class LossScaleCollapse : public TensorRule {
 public:
  explicit LossScaleCollapse(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("scale_regex")}}),
        min_scale_(parameters.get_float("min_scale")),
        max_reductions_(static_cast<double>(parameters.get_int("max_reductions"))),
        reduction_window_(static_cast<std::size_t>(parameters.get_int("reduction_window"))),
        skipped_share_(parameters.get_float("skipped_share")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::string& name = tensor_name(worker, row);
    const double scale = row.statistics.mean;
    if (name.ends_with("skipped_step") || !std::isfinite(scale)) return;
    Scale& state = scales_.at(worker, row.tensor, step.mode);
    if (state.points == 0) state.reductions = RollingWindow(reduction_window_);
    state.reductions.push(state.points > 0 && scale < state.last ? 1.0 : 0.0);
    state.skipped.push(skipped_.is_skipped(worker) ? 1.0 : 0.0);
    state.last = scale;
    state.highest = std::max(state.highest, scale);
    ++state.points;

    const ScalarPoint point{step, worker, row, name, scale, findings};
    const bool is_at_end = scale <= min_scale_ && state.highest > min_scale_;
    if (state.end.tell(is_at_end, 1, point.is_judged())) {
      point.add("mean", scale, min_scale_, Severity::kCritical,
                fmt::format("{} fell from {:g} to {:g} at step {}: there is no range left.", name,
                            state.highest, scale, step.step));
    }
    judge_reductions(point, state);
    judge_skipped(point, state);
  }

 private:
  struct Scale {
    RollingWindow reductions;
    RollingWindow skipped{kSkipWindow};
    double last = 0.0;
    double highest = 0.0;
    std::int64_t points = 0;
    Persistence end;
    Persistence many_reductions;
    Persistence many_skipped;
  };

  void judge_reductions(const ScalarPoint& point, Scale& state) const {
    const double count =
        std::round(state.reductions.mean() * static_cast<double>(state.reductions.size()));
    if (!state.many_reductions.tell(count >= max_reductions_, 1, point.is_judged())) return;
    point.add(
        "reductions", count, max_reductions_, Severity::kWarning,
        fmt::format("{} was reduced {:g} times within the last {} saved steps, to {:g} at "
                    "step {}.",
                    point.name, count, state.reductions.size(), point.value, point.step.step));
  }

  void judge_skipped(const ScalarPoint& point, Scale& state) const {
    const double share = state.skipped.mean();
    const bool is_often = state.skipped.is_full() && share > skipped_share_;
    if (!state.many_skipped.tell(is_often, 1, point.is_judged())) return;
    point.add("skipped_share", share, skipped_share_, Severity::kWarning,
              fmt::format("{:.1f} % of the last {} steps up to step {} were skipped because of an "
                          "overflow.",
                          100.0 * share, kSkipWindow, point.step.step));
  }

  const double min_scale_;
  const double max_reductions_;
  const std::size_t reduction_window_;
  const double skipped_share_;
  SkippedSteps skipped_;
  PerSeries<Scale> scales_;
};

}  // namespace

const RuleDescriptor& loss_scale_collapse_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A loss scale that falls and falls, or skips many steps.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kPrecision,
      .advice = {"Steps that overflow are not taken, and with a small scale the small gradients "
                 "are flushed to zero: the training stands still.",
                 kCauses,
                 "Find the first tensor that is not finite (NonFiniteOrigin). Train in bfloat16, "
                 "or keep the layers that overflow in float32."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LossScaleCollapse>,
  };
  return kDescriptor;
}

}  // namespace tensortap
