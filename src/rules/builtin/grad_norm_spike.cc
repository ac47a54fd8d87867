// GradNormSpike: the norm of the gradients jumps, or is clipped all the time.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "GradNormSpike";
constexpr std::string_view kCollection = "gradients";

constexpr std::string_view kDoc =
    R"(Fires when a gradient norm jumps: its logarithm has a robust z of `z` or more over the
`window` points before, and it is at least `ratio` times their median. Judged are

- the norm of all gradients before clipping: scalars that `norm_regex` matches (what
  `clip_grad_norm_` returned, and what TRL, verl and Lightning log). Where a worker has none, the
  norm of the recorded gradients together;
- with `per_tensor`, the norm of each gradient that makes at least `tensor_share` of that whole.
  At most the five with the highest z are reported. It is critical when the largest element
  exceeds 50 times what it was on average, as SPAM defines a spike.

With `max_norm` (leave it unset where constant clipping is meant), it also warns when more than
`clip_share` of the last 300 norms, after `warmup_steps`, lay above it: the clipping then sets the
step length, not the learning rate.

A norm that is zero or not finite is no point here: NoGradientFlow and NonFiniteOrigin tell of
it. Training steps only; several workers are judged one by one.

Source: OLMo 2 (arXiv 2501.00656), norm spikes come before loss spikes; SPAM (2501.06842) for the
ratio of an element; the share of clipped steps from a public alert script for Weights & Biases,
healthy runs stay at 0.5 % or less. `tensor_share` is ours: tensors with next to no gradient are
noise.)";

constexpr std::array<ParameterDescriptor, 11> kParameters = {{
    {"norm_regex", ParameterType::kString,
     "^gradient_norm/|^scalar/(.*/)?(total_)?grad(ient)?_?norm$|^scalar/grad_2(\\.0)?_norm_total$",
     "Pattern of names of scalars that hold the norm of all gradients."},
    {"window", ParameterType::kInt, "100", "Points that make the past.", 2},
    {"min_points", ParameterType::kInt, "25", "Points of the past before anything is judged.", 2},
    {"z", ParameterType::kFloat, "6", "Robust z of log(norm) from which it is a spike.", 0.0},
    {"floor", ParameterType::kFloat, "0.05", "Least median absolute deviation of log(norm).", 0.0,
     1e308, true},
    {"ratio", ParameterType::kFloat, "3", "Least ratio of a spike to the median.", 1.0},
    {"per_tensor", ParameterType::kBool, "true", "Judge each gradient's norm too."},
    {"tensor_share", ParameterType::kFloat, "0.1",
     "Share of the norm of all gradients that a gradient must make to be judged.", 0.0, 1.0},
    {"max_norm", ParameterType::kFloat, "", "What gradients are clipped to; unset: not judged.",
     0.0, 1e308, true},
    {"clip_share", ParameterType::kFloat, "0.05", "Share of clipped steps that is tolerated.", 0.0,
     1.0},
    {"warmup_steps", ParameterType::kInt, "100",
     "Points at the start that do not count for clip_share.", 0},
}};

constexpr std::array<std::string_view, 2> kCollections = {"gradient_norms", kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a batch unlike the others: unusual length, corrupt samples",
    "a learning rate that is too high for the curvature met here",
    "no clipping, or clipping at a norm that is far above the usual one",
    "attention logits or activations that have grown",
};

constexpr double kElementRatio = 50.0;
constexpr std::size_t kTopTensors = 5;
constexpr std::size_t kClipWindow = 300;

class GradNormSpike : public TensorRule {
 public:
  explicit GradNormSpike(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("norm_regex")}}),
        limits_{static_cast<std::size_t>(parameters.get_int("window")),
                static_cast<std::size_t>(parameters.get_int("min_points")),
                parameters.get_float("z"), parameters.get_float("floor"),
                parameters.get_float("ratio")},
        is_per_tensor_(parameters.get_bool("per_tensor")),
        tensor_share_(parameters.get_float("tensor_share")),
        max_norm_(parameters.is_set("max_norm") ? parameters.get_float("max_norm") : 0.0),
        clip_share_(parameters.get_float("clip_share")),
        warmup_steps_(parameters.get_int("warmup_steps")),
        norms_({}, {parameters.get_string("norm_regex")}) {}

 protected:
  void begin(const StepView&) override { workers_.clear(); }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (workers_.empty() || workers_.back().worker != &worker) {
      workers_.push_back({&worker, 0.0, skipped_.is_skipped(worker), false});
    }
    OfWorker& sum = workers_.back();
    if (sum.is_skipped) return;
    if (norms_.selects(worker, row.tensor)) {
      sum.has_norm = true;
      judge_whole(step, worker, row.tensor, tensor_name(worker, row), row.statistics.mean,
                  findings);
      return;
    }
    const double norm = statistic_value(row.statistics, StatisticId::kL2);
    if (std::isfinite(norm)) sum.squares += norm * norm;
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (const OfWorker& sum : workers_) {
      if (sum.is_skipped || sum.squares == 0.0) continue;
      const double whole = std::sqrt(sum.squares);
      if (!sum.has_norm) judge_whole(step, *sum.worker, kNoTensor, "", whole, findings);
      if (is_per_tensor_) judge_tensors(step, *sum.worker, whole, findings);
    }
  }

 private:
  // Of the norms that are computed here; at() counts from 0.
  static constexpr TensorId kNoTensor = 0;

  struct OfWorker {
    const WorkerStep* worker;
    double squares;
    bool is_skipped;
    bool has_norm;
  };
  struct Whole {
    bool is_begun = false;
    NormHistory history;
    RollingWindow clipped{kClipWindow};  // 1 where the norm was above max_norm
    Persistence clips;
    std::int64_t points = 0;
  };
  struct Single {
    bool is_begun = false;
    NormHistory history;
    MovingAverage largest{0.99};
  };
  struct Offender {
    const StatisticsRow* row;
    Spike spike;
    double norm;
    double element_ratio;
  };

  void judge_whole(const StepView& step, const WorkerStep& worker, TensorId tensor,
                   const std::string& name, double norm, std::vector<Finding>* findings) {
    if (!(norm > 0.0) || !std::isfinite(norm)) return;
    Whole& whole = name.empty() ? computed_.at(worker, kNoTensor, step.mode)
                                : wholes_.at(worker, tensor, step.mode);
    if (!whole.is_begun) {
      whole.is_begun = true;
      whole.history = NormHistory(limits_);
    }
    const std::optional<Spike> spike = whole.history.judge(norm);
    if (spike && findings != nullptr) {
      Finding& finding = findings->emplace_back(finding_at(step, name, worker.worker));
      finding.statistic = name.empty() ? "l2" : "mean";
      finding.observed = norm;
      finding.threshold = limits_.ratio * spike->median;
      finding.message = fmt::format(
          "The gradient norm jumped to {:.4g} at step {}, {:.1f} times the median of the points "
          "before (robust z {:.1f}).",
          norm, step.step, norm / spike->median, spike->z);
    }
    if (max_norm_ > 0.0 && !name.empty()) {
      judge_clipping(step, worker, whole, name, norm, findings);
    }
  }

  void judge_clipping(const StepView& step, const WorkerStep& worker, Whole& whole,
                      const std::string& name, double norm, std::vector<Finding>* findings) {
    if (whole.points++ < warmup_steps_) return;
    whole.clipped.push(norm > max_norm_ ? 1.0 : 0.0);
    const double share = whole.clipped.mean();
    const bool is_saturated = whole.clipped.is_full() && share > clip_share_;
    if (!whole.clips.tell(is_saturated, 1, findings != nullptr)) return;
    Finding& finding = findings->emplace_back(finding_at(step, name, worker.worker));
    finding.statistic = "clipped_share";
    finding.observed = share;
    finding.threshold = clip_share_;
    finding.message =
        fmt::format("{:.1f} % of the last {} gradient norms up to step {} were clipped to {:g}.",
                    100.0 * share, kClipWindow, step.step, max_norm_);
  }

  void judge_tensors(const StepView& step, const WorkerStep& worker, double whole,
                     std::vector<Finding>* findings) {
    offenders_.clear();
    for (const StatisticsRow& row : worker.record->rows) {
      if (!gradients_.selects(worker, row.tensor)) continue;
      const double norm = statistic_value(row.statistics, StatisticId::kL2);
      if (!(norm >= tensor_share_ * whole)) continue;
      Single& single = singles_.at(worker, row.tensor, step.mode);
      if (!single.is_begun) {
        single.is_begun = true;
        single.history = NormHistory(limits_);
      }
      const double largest = statistic_value(row.statistics, StatisticId::kAbsMax);
      const std::optional<Spike> spike = single.history.judge(norm);
      if (spike) {
        offenders_.push_back({&row, *spike, norm, largest / single.largest.value()});
      } else {
        single.largest.push(largest);
      }
    }
    if (findings == nullptr) return;
    std::stable_sort(offenders_.begin(), offenders_.end(),
                     [](const Offender& a, const Offender& b) { return a.spike.z > b.spike.z; });
    if (offenders_.size() > kTopTensors) offenders_.resize(kTopTensors);
    for (const Offender& offender : offenders_)
      findings->push_back(describe(step, worker, offender));
  }

  Finding describe(const StepView& step, const WorkerStep& worker, const Offender& offender) const {
    Finding finding = finding_at(step, tensor_name(worker, *offender.row), worker.worker);
    finding.statistic = "l2";
    finding.observed = offender.norm;
    finding.threshold = limits_.ratio * offender.spike.median;
    if (offender.element_ratio > kElementRatio) finding.severity = Severity::kCritical;
    finding.message = fmt::format(
        "The norm of {} jumped to {:.4g} at step {}, {:.1f} times the median of the points before "
        "(robust z {:.1f}); its largest element is {:.3g} times what it was on average.",
        finding.tensor, offender.norm, step.step, offender.norm / offender.spike.median,
        offender.spike.z, offender.element_ratio);
    return finding;
  }

  const SpikeLimits limits_;
  const bool is_per_tensor_;
  const double tensor_share_;
  const double max_norm_;  // 0: not judged
  const double clip_share_;
  const std::int64_t warmup_steps_;
  TensorSelector norms_;
  TensorSelector gradients_{{std::string(kCollection)}, {}};
  SkippedSteps skipped_;
  std::vector<OfWorker> workers_;
  std::vector<Offender> offenders_;
  PerSeries<Whole> wholes_;
  PerSeries<Whole> computed_;
  PerSeries<Single> singles_;
};

}  // namespace

const RuleDescriptor& grad_norm_spike_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A gradient norm that jumps, or is clipped all the time.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kGradient,
      .advice = {"A jump of the gradient norm comes before most loss spikes, and the step it makes "
                 "may undo much of what was learnt.",
                 kCauses,
                 "Look at the batch of that step. Clip the gradient norm at a few times its "
                 "median, or lower the learning rate."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<GradNormSpike>,
  };
  return kDescriptor;
}

}  // namespace tensortap
