// OutputLogitDrift: output logits that drift away as a whole.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "OutputLogitDrift";
constexpr std::string_view kCollection = "output_logits";

constexpr std::string_view kDoc =
    R"(Follows m, the mean over tokens of log Z, the logarithm of the sum of exponentials of a
token's output logits. Warns when |m| exceeds `max_level` plus log(`vocabulary`), and when m has
moved by more than `max_drift` since `window` points ago (since the first point, in a younger run)
while the loss, smoothed, fell by less than 1%. Without a loss only the level is judged.

m is a scalar that `tensor_regex` matches, best taken over the tokens that count for the loss. Or
save logits, or those of a sample of tokens, with raw values in the collection `output_logits`:
the last axis is the vocabulary then. Logits that a soft cap bounds cannot drift; leave the rule
out there.

Source: arXiv 2309.14322, which cures the drift with a loss of 1e-4 log^2 Z, as OLMo 2 does. The
limits are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"tensor_regex", ParameterType::kString,
     "(^|[/_.])(log_?z|log_?sum_?exp|log_partition)(_mean)?$", "Pattern of names of mean log Z."},
    {"max_level", ParameterType::kFloat, "20", "Level above log(vocabulary) that warns.", 0.0},
    {"vocabulary", ParameterType::kInt, "50000",
     "Size of the vocabulary, where only log Z is saved.", 1},
    {"max_drift", ParameterType::kFloat, "5", "Movement within a window that warns.", 0.0},
    {"window", ParameterType::kInt, "500", "Points of a window.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 3> kCauses = {
    "nothing holds log Z: cross-entropy does not change when all logits move together",
    "no weight decay on the output layer",
    "a learning rate that is too high for the output layer",
};

constexpr double kMinFall = 0.01;
constexpr double kRoom = 1e-6;  // of recorded scalars, which are rounded

// Mean over rows of the log of the sum of exponentials; rows that are not finite are left out.
std::optional<double> mean_log_z(const TensorValues& logits) {
  if (logits.shape.empty() || logits.elements.empty()) return std::nullopt;
  const auto width = static_cast<std::size_t>(logits.shape.back());
  double total = 0.0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < logits.elements.size(); i += width) {
    const std::span<const double> row(&logits.elements[i], width);
    const double highest = *std::max_element(row.begin(), row.end());
    double sum = 0.0;
    for (const double logit : row) sum += std::exp(logit - highest);
    const double log_z = highest + std::log(sum);
    if (!std::isfinite(log_z)) continue;
    total += log_z;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return total / static_cast<double>(count);
}

class OutputLogitDrift : public TensorRule {
 public:
  explicit OutputLogitDrift(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("tensor_regex")}}),
        max_level_(parameters.get_float("max_level")),
        vocabulary_(static_cast<double>(parameters.get_int("vocabulary"))),
        max_drift_(parameters.get_float("max_drift")),
        window_(static_cast<std::size_t>(parameters.get_int("window"))) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    std::optional<double> log_z = single_value(row);
    double vocabulary = vocabulary_;
    if (!log_z) {
      const std::optional<TensorValues> logits = values_of(worker, row);
      if (!logits) {
        note_missing_values();
        return;
      }
      log_z = mean_log_z(*logits);
      if (log_z) vocabulary = static_cast<double>(logits->shape.back());
    }
    if (!log_z || !std::isfinite(*log_z)) return;
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), *log_z, findings};
    Output& output = outputs_.at(worker, row.tensor, step.mode);
    judge_level(point, max_level_ + std::log(vocabulary), output);
    judge_drift(point, loss_of(worker), output);
  }

 private:
  struct Output {
    RollingWindow levels;
    RollingWindow losses;  // smoothed
    MovingAverage loss{0.9};
    Persistence high;
    Persistence drifted;
  };

  void judge_level(const ScalarPoint& point, double limit, Output& output) const {
    const bool is_high = std::abs(point.value) > limit;
    if (!output.high.tell(is_high, 1, point.is_judged())) return;
    point.add("log_z", point.value, limit, Severity::kWarning,
              fmt::format("log Z of the output logits ({}) is {:.4g} at step {}, beyond {:.4g}.",
                          point.name, point.value, point.step.step, limit));
  }

  void judge_drift(const ScalarPoint& point, std::optional<double> loss, Output& output) const {
    if (!loss) return;
    output.loss.push(*loss);
    if (output.levels.size() == 0) {
      output.levels = RollingWindow(window_);
      output.losses = RollingWindow(window_);
    } else {
      const double drift = point.value - output.levels[0];
      const double old_loss = output.losses[0];
      const bool has_fallen = output.loss.value() <= old_loss - kMinFall * std::abs(old_loss);
      const bool is_far = std::abs(drift) > max_drift_ + kRoom * std::abs(point.value);
      if (output.drifted.tell(is_far && !has_fallen, 1, point.is_judged())) {
        point.add(
            "drift", drift, max_drift_, Severity::kWarning,
            fmt::format("log Z of the output logits ({}) has moved by {:.4g} within {} points "
                        "up to step {}, while the loss did not fall.",
                        point.name, drift, output.levels.size(), point.step.step));
      }
    }
    output.levels.push(point.value);
    output.losses.push(output.loss.value());
  }

  std::optional<double> loss_of(const WorkerStep& worker) {
    for (const StatisticsRow& row : worker.record->rows) {
      if (!loss_.selects(worker, row.tensor) || !std::isfinite(row.statistics.mean)) continue;
      return row.statistics.mean;
    }
    return std::nullopt;
  }

  const double max_level_;
  const double vocabulary_;
  const double max_drift_;
  const std::size_t window_;
  TensorSelector loss_{{"losses"}, {}};
  PerSeries<Output> outputs_;
};

}  // namespace

const RuleDescriptor& output_logit_drift_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Output logits that drift away as a whole.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"Logits far from log probabilities lose digits in low precision, and late in a "
                 "training the loss diverges.",
                 kCauses,
                 "Add a z-loss (1e-4 times the square of log Z), or weight decay on the output "
                 "layer."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<OutputLogitDrift>,
  };
  return kDescriptor;
}

}  // namespace tensortap
