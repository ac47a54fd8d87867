// LossSpike: a loss that jumps above its recent past.
#include <array>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LossSpike";
constexpr std::string_view kCollection = "losses";

constexpr std::string_view kDoc =
    R"(Fires when a loss jumps upwards. Its logarithm (the loss itself where the window holds a
loss that is not positive) is compared with the `window` points before by the robust z: 0.6745 (x
- median) / max(MAD, floor). From `warn_z` on it is a warning; from `critical_z` on, or when the
gradient norm spiked within the 5 points before (as GradNormSpike tells it), critical. A spike is
told once, at its first point; points of a spike do not join the window. When z stays at
`unrecovered_z` or more against the loss before the spike for `unrecovered_points` points, a
second, critical finding says that the loss has not recovered, and the past is learnt anew.

The message carries the spike score of OLMo 2: the share of points 7 standard deviations or more
from the mean of the 1000 points before.

Looks at one-element tensors of the collection `losses`, and at what `tensor_regex` matches, at
training steps; several workers are judged one by one. Steps that a loss scaler skipped are not
points.

Source: PaLM (arXiv 2204.02311) on spikes and restarts about 100 steps earlier, OLMo 2
(2501.00656) for the score; limits 6 and 8 of the robust z from a public alert script for Weights
& Biases, in which healthy runs stayed below 4.5.)";

constexpr std::array<ParameterDescriptor, 8> kParameters = {{
    {"tensor_regex", ParameterType::kString, "",
     "Pattern of names of scalars that are judged beside the collection losses."},
    {"window", ParameterType::kInt, "100", "Points that make the past.", 2},
    {"min_points", ParameterType::kInt, "50", "Points of the past before anything is judged.", 2},
    {"floor", ParameterType::kFloat, "0.01",
     "Least median absolute deviation, in units of log(loss).", 0.0, 1e308, true},
    {"warn_z", ParameterType::kFloat, "6", "Robust z from which a point is a spike.", 0.0},
    {"critical_z", ParameterType::kFloat, "8", "Robust z from which a spike is critical.", 0.0},
    {"unrecovered_z", ParameterType::kFloat, "3", "Robust z below which a spike is over.", 0.0},
    {"unrecovered_points", ParameterType::kInt, "100",
     "Points after a spike after which it counts as not recovered.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high, or too little warm-up",
    "a bad batch: repeated n-grams, corrupt or mislabelled samples",
    "Adam's second moment lagging behind the gradients",
    "attention or output logits that have grown",
};

std::vector<std::string> regexes_of(const Parameters& parameters) {
  if (!parameters.is_set("tensor_regex")) return {};
  return {parameters.get_string("tensor_regex")};
}

class LossSpike : public ScalarRule {
 public:
  explicit LossSpike(const Parameters& parameters)
      : ScalarRule({.collections = {std::string(kCollection)}, .regexes = regexes_of(parameters)}),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        min_points_(static_cast<std::size_t>(parameters.get_int("min_points"))),
        floor_(parameters.get_float("floor")),
        warn_z_(parameters.get_float("warn_z")),
        critical_z_(parameters.get_float("critical_z")),
        unrecovered_z_(parameters.get_float("unrecovered_z")),
        unrecovered_points_(parameters.get_int("unrecovered_points")) {}

 protected:
  void point(const ScalarPoint& point) override {
    const bool has_norm_spike = watch_gradient_norm(point);
    Loss& loss = losses_.at(point.worker, point.row.tensor, point.step.mode);
    if (!loss.is_begun) loss = Loss(window_);
    loss.score.push(point.value);
    if (loss.past.size() < min_points_) {
      loss.push(point.value);
      return;
    }
    const double z = loss.robust_z(point.value, floor_);
    const bool is_critical = z >= critical_z_ || (z >= warn_z_ && has_norm_spike);
    tell(point, loss, z, is_critical);
    if (z < warn_z_) loss.push(point.value);
    watch_recovery(point, loss, z);
  }

 private:
  static constexpr std::int64_t kNormSpikePoints = 5;

  struct Loss {
    Loss() = default;
    explicit Loss(std::size_t window) : is_begun(true), past(window), past_logs(window) {}

    bool is_begun = false;
    RollingWindow past;
    RollingWindow past_logs;  // of the positive ones; read only while all are
    SpikeScore score;
    Persistence spike;
    Persistence critical_spike;
    // Since a spike: what the loss was before it, and how long it has not come back.
    RollingWindow before;
    RollingWindow before_logs;
    std::int64_t unrecovered = -1;

    void push(double value) {
      past.push(value);
      past_logs.push(value > 0.0 ? std::log(value) : 0.0);
    }
    static double z_against(const RollingWindow& past, const RollingWindow& logs, double value,
                            double floor) {
      const bool has_logs = value > 0.0 && past.minimum() > 0.0;
      return has_logs ? logs.robust_z(std::log(value), floor) : past.robust_z(value, floor);
    }
    double robust_z(double value, double floor) const {
      return z_against(past, past_logs, value, floor);
    }
  };

  // Whether the worker's gradient norm spiked in the newest points.
  bool watch_gradient_norm(const ScalarPoint& point) {
    if (norms_.size() <= point.worker.worker_index) norms_.resize(point.worker.worker_index + 1);
    Norm& norm = norms_[point.worker.worker_index];
    if (norm.last_step != point.step.step) {
      norm.last_step = point.step.step;
      ++norm.points_since_spike;
      const std::optional<double> value = norm_.value(point.worker);
      if (value && norm.history.judge(*value)) norm.points_since_spike = 0;
    }
    return norm.points_since_spike <= kNormSpikePoints;
  }

  void tell(const ScalarPoint& point, Loss& loss, double z, bool is_critical) {
    const bool warns = loss.spike.tell(z >= warn_z_, 1, point.is_judged());
    const bool alarms = loss.critical_spike.tell(is_critical, 1, point.is_judged());
    if (z >= warn_z_ && loss.unrecovered < 0) {
      loss.before = loss.past;
      loss.before_logs = loss.past_logs;
      loss.unrecovered = 0;
    }
    if (!warns && !alarms) return;
    const std::string score = loss.score.judged() == 0
                                  ? ""
                                  : fmt::format(" Spike score: {} of {} points.",
                                                loss.score.spikes(), loss.score.judged());
    point.add("mean", point.value, loss.past.median(),
              is_critical ? Severity::kCritical : Severity::kWarning,
              fmt::format("{} jumped to {:.4g} at step {}, from a median of {:.4g} over the {} "
                          "points before (robust z {:.1f}).{}",
                          point.name, point.value, point.step.step, loss.past.median(),
                          loss.past.size(), z, score));
  }

  void watch_recovery(const ScalarPoint& point, Loss& loss, double z) {
    if (loss.unrecovered < 0) return;
    if (Loss::z_against(loss.before, loss.before_logs, point.value, floor_) < unrecovered_z_) {
      loss.unrecovered = -1;
      return;
    }
    if (loss.unrecovered < unrecovered_points_) ++loss.unrecovered;
    if (loss.unrecovered < unrecovered_points_ || !point.is_judged()) return;
    point.add("mean", point.value, loss.before.median(), Severity::kCritical,
              fmt::format("{} has not recovered from its spike: {:.4g} at step {}, {} points after "
                          "it stood at {:.4g}.",
                          point.name, point.value, point.step.step, unrecovered_points_,
                          loss.before.median()));
    loss.unrecovered = -1;
    if (z >= warn_z_) {
      loss.past.clear();
      loss.past_logs.clear();
    }
  }

  struct Norm {
    std::int64_t last_step = std::numeric_limits<std::int64_t>::min();
    std::int64_t points_since_spike = kNormSpikePoints + 1;
    NormHistory history;
  };

  const std::size_t window_;
  const std::size_t min_points_;
  const double floor_;
  const double warn_z_;
  const double critical_z_;
  const double unrecovered_z_;
  const std::int64_t unrecovered_points_;
  NamedScalar norm_{"^gradient_norm/|^scalar/.*grad(ient)?_norm"};
  std::vector<Norm> norms_;  // [worker_index]
  PerSeries<Loss> losses_;
};

}  // namespace

const RuleDescriptor& loss_spike_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A loss that jumps above its recent past.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kLoss,
      .advice = {"A spike may cost thousands of steps, and some runs never come back from one.",
                 kCauses,
                 "Look at the batches of the spike. If the loss stays up, go back to a checkpoint "
                 "at least 100 steps before it and skip 200 to 500 batches, or lower the learning "
                 "rate."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LossSpike>,
  };
  return kDescriptor;
}

}  // namespace tensortap
