// LRScheduleFault: a learning rate that does not follow its declared schedule.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LRScheduleFault";
constexpr std::string_view kCollection = "learning_rates";

constexpr std::string_view kDoc =
    R"(With a declared schedule (`peak`, and as it applies `schedule`, `warmup_steps`,
`total_steps`, `min_lr`) each learning rate is compared with what it should be at its step of the
training: a relative deviation above `tolerance` at `persist` points in a row fires. Warm-up is
linear; a schedule that counts its first step as 0 and one that counts it as 1 are both right, and
so is one that stands still at steps that a loss scaler skipped. The message gives the ratio to
the declared rate; during warm-up a ratio like the number of processes, or its inverse, says that
the scheduler is stepped once per process.

Without a declaration it fires when a learning rate is negative (critical), zero at `zero_persist`
points in a row, or changes by more than `max_jump` times between neighbouring steps.

Looks at the collection `learning_rates` and at what `tensor_regex` matches, at training steps.

Source: accelerate #662, #1382, #2773, #2926, transformers PR #24088 and #26827, diffusers PR
#8312: schedulers stepped once per process, wrong rates after a resume.)";

constexpr std::array<ParameterDescriptor, 10> kParameters = {{
    {"tensor_regex", ParameterType::kString, "^scalar/((.*/)?(learning_rate|lr)$|lr-)",
     "Pattern of names of learning rates among the scalars."},
    {"peak", ParameterType::kFloat, "", "Declared highest learning rate.", 0.0, 1e308, true},
    {"schedule", ParameterType::kString, "constant",
     "Declared course after warm-up: constant, linear or cosine."},
    {"warmup_steps", ParameterType::kInt, "0", "Declared steps of linear warm-up.", 0},
    {"total_steps", ParameterType::kInt, "0", "Declared steps of the whole training.", 0},
    {"min_lr", ParameterType::kFloat, "0", "Declared learning rate at the end.", 0.0},
    {"tolerance", ParameterType::kFloat, "0.01", "Relative deviation that is tolerated.", 0.0},
    {"persist", ParameterType::kInt, "3", "Deviating points in a row that fire.", 1},
    {"zero_persist", ParameterType::kInt, "10", "Points with learning rate 0 that fire.", 1},
    {"max_jump", ParameterType::kFloat, "10",
     "Without a declaration, ratio of neighbouring learning rates that is tolerated.", 1.0},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a scheduler that is stepped once per process or per micro-batch",
    "a scheduler that is stepped per epoch where steps were meant, or not at all",
    "a scheduler whose state was not restored at a resume",
    "total_steps computed for another batch size or number of processes",
};

enum Shape : std::size_t { kConstant, kLinear, kCosine };
constexpr std::array<std::string_view, 3> kShapes = {"constant", "linear", "cosine"};

class LRScheduleFault : public ScalarRule {
 public:
  explicit LRScheduleFault(const Parameters& parameters)
      : ScalarRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("tensor_regex")}}),
        is_declared_(parameters.is_set("peak")),
        peak_(is_declared_ ? parameters.get_float("peak") : 0.0),
        shape_(choice_of(kName, parameters, "schedule", kShapes)),
        warmup_steps_(parameters.get_int("warmup_steps")),
        total_steps_(parameters.get_int("total_steps")),
        min_lr_(parameters.get_float("min_lr")),
        tolerance_(parameters.get_float("tolerance")),
        persist_(parameters.get_int("persist")),
        zero_persist_(parameters.get_int("zero_persist")),
        max_jump_(parameters.get_float("max_jump")) {}

 protected:
  void begin(const StepView& step) override {
    ScalarRule::begin(step);
    for (const WorkerStep& worker : step.workers) {
      if (skipped_counts_.size() <= worker.worker_index) {
        skipped_counts_.resize(worker.worker_index + 1);
      }
      if (skipped_.is_skipped(worker)) ++skipped_counts_[worker.worker_index];
    }
  }

  void point(const ScalarPoint& point) override {
    Rate& rate = rates_.at(point.worker, point.row.tensor, point.step.mode);
    if (rate.negative.tell(point.value < 0.0, 1, point.is_judged())) {
      point.add("mean", point.value, 0.0, Severity::kCritical,
                fmt::format("{} is negative at step {}: {:g}.", point.name, point.step.step,
                            point.value));
    }
    is_declared_ ? judge_declared(point, rate) : judge_undeclared(point, rate);
    rate.last = point.value;
    rate.last_step = point.step.mode_step;
    rate.has_last = true;
  }

 private:
  struct Rate {
    bool has_last = false;
    double last = 0.0;
    std::int64_t last_step = 0;
    Persistence negative;
    Persistence zero;
    Persistence deviation;
  };

  double declared_at(std::int64_t index) const {
    if (index < warmup_steps_) {
      return peak_ * static_cast<double>(index) / static_cast<double>(warmup_steps_);
    }
    if (shape_ == kConstant || total_steps_ <= warmup_steps_) return peak_;
    const double done = std::min(1.0, static_cast<double>(index - warmup_steps_) /
                                          static_cast<double>(total_steps_ - warmup_steps_));
    const double left =
        shape_ == kLinear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return min_lr_ + (peak_ - min_lr_) * left;
  }

  bool is_as_declared(double value, std::int64_t index) const {
    const double declared = declared_at(index);
    // A millionth of the peak is nothing: ends of schedules meet zero by rounding.
    return std::abs(value - declared) <= tolerance_ * declared + 1e-6 * peak_;
  }

  void judge_declared(const ScalarPoint& point, Rate& rate) const {
    const std::int64_t index = point.step.mode_step;
    const std::int64_t without_skipped = index - skipped_counts_[point.worker.worker_index];
    const bool is_right = is_as_declared(point.value, index) ||
                          is_as_declared(point.value, index + 1) ||
                          is_as_declared(point.value, without_skipped) ||
                          is_as_declared(point.value, without_skipped + 1);
    if (!rate.deviation.tell(!is_right, persist_, point.is_judged())) return;
    const double declared = declared_at(index);
    point.add("mean", point.value, declared, Severity::kWarning,
              fmt::format("{} is {:.4g} at step {} of {}, where {:.4g} was declared.{}", point.name,
                          point.value, index, mode_name(point.step.mode), declared,
                          explain(rate, point.value, declared, index)));
  }

  std::string explain(const Rate& rate, double value, double declared, std::int64_t index) const {
    if (value == 0.0) return " It is zero.";
    const bool is_constant = rate.has_last && rate.last == value;
    const bool is_warming_up = index < warmup_steps_;
    if (is_warming_up && is_constant) return " It does not change during the declared warm-up.";
    if (is_warming_up && declared > 0.0) {
      const double factor = value / declared;
      if (factor >= 1.5) {
        return fmt::format(
            " Warm-up runs {:.2g} times as fast: is the scheduler stepped once per process?",
            factor);
      }
      if (factor <= 0.67) {
        return fmt::format(
            " Warm-up runs {:.2g} times as slow: is the scheduler stepped per accumulation?",
            1.0 / factor);
      }
    }
    if (rate.has_last && value > rate.last && !is_warming_up) return " It rises after warm-up.";
    return "";
  }

  void judge_undeclared(const ScalarPoint& point, Rate& rate) const {
    if (rate.zero.tell(point.value == 0.0, zero_persist_, point.is_judged())) {
      point.add("mean", 0.0, 0.0, Severity::kWarning,
                fmt::format("{} has been 0 for {} points up to step {}: nothing is learnt.",
                            point.name, zero_persist_, point.step.step));
    }
    const bool are_neighbours = rate.has_last && point.step.mode_step == rate.last_step + 1;
    if (!are_neighbours || !(rate.last > 0.0) || !(point.value > 0.0)) return;
    const double jump = std::max(point.value / rate.last, rate.last / point.value);
    if (jump <= max_jump_ * (1.0 + 1e-6) || !point.is_judged()) return;
    point.add("ratio", jump, max_jump_, Severity::kWarning,
              fmt::format("{} jumped from {:.4g} to {:.4g} at step {}.", point.name, rate.last,
                          point.value, point.step.step));
  }

  const bool is_declared_;
  const double peak_;
  const std::size_t shape_;
  const std::int64_t warmup_steps_;
  const std::int64_t total_steps_;
  const double min_lr_;
  const double tolerance_;
  const std::int64_t persist_;
  const std::int64_t zero_persist_;
  const double max_jump_;
  SkippedSteps skipped_;
  std::vector<std::int64_t> skipped_counts_;  // [worker_index]
  PerSeries<Rate> rates_;
};

}  // namespace

const RuleDescriptor& lr_schedule_fault_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A learning rate that does not follow its schedule.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kLearningRate,
      .advice = {"A wrong schedule costs quality silently: warm-up ends too early, or the training "
                 "runs on with no learning rate left.",
                 kCauses,
                 "Print the learning rate of every step beside the declared one, and count how "
                 "often the scheduler is stepped."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LRScheduleFault>,
  };
  return kDescriptor;
}

}  // namespace tensortap
