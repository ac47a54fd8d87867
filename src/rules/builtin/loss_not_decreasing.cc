// LossNotDecreasing: a loss that does not fall fast enough, rises, or is no number.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/loss_rule.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LossNotDecreasing";
constexpr std::string_view kLosses = "losses";
constexpr std::array kPolicies = {WorkerPolicy::kMean, WorkerPolicy::kAny, WorkerPolicy::kFirst};

constexpr std::string_view kDoc =
    R"(Judges every `num_steps` steps whether each loss has fallen. The loss of a saved step is
compared with the newest finite loss at least `num_steps` older; when losses are saved every 3
steps and num_steps is 10, step 21 is compared with step 9 and the next comparison is at step 33.
With the fall in percent of the older loss:

- a fall of more than `diff_percent` is fine;
- a smaller one, or none, fires (the loss stagnates);
- a rise of more than `increase_threshold_percent` fires; a smaller rise is tolerated unless
  `tolerate_small_increase` is false;
- a loss that is NaN or infinite fires.

Looks at one-element tensors of the collection `losses` (unless `use_losses_collection` is false)
and of `collection_names` and `tensor_regex`. Each has its own state. Metrics that are meant to
rise (auc, aucpr, map, ndcg, pre, accuracy) are left out. Several workers: their mean is judged;
`worker_policy` any judges each, first only the first.

Steps are counted within `mode`. Unset, the first of EVAL, TRAIN, GLOBAL in which a tensor occurs
counts for that tensor; since a rule cannot know the future, its TRAIN steps are judged until its
first EVAL step. With mode GLOBAL all steps count, by global step.

Source: SageMaker Debugger's rule of that name; `tolerate_small_increase` and `worker_policy` are
additions.)";

constexpr std::array<ParameterDescriptor, 9> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections whose scalars are judged too, separated by commas."},
    {"tensor_regex", ParameterType::kList, "",
     "Patterns of names of scalars that are judged too, separated by commas."},
    {"use_losses_collection", ParameterType::kBool, "true", "Judge the collection `losses`."},
    {"num_steps", ParameterType::kInt, "10",
     "Steps between comparisons, and between the steps that are compared.", 1},
    {"diff_percent", ParameterType::kFloat, "0.1",
     "Fall, in percent of the older loss, that must be exceeded.", 0.0, 100.0},
    {"increase_threshold_percent", ParameterType::kFloat, "5",
     "Rise, in percent of the older loss, that is tolerated.", 0.0, 100.0},
    {"mode", ParameterType::kString, "",
     "Mode whose steps count: EVAL, TRAIN or GLOBAL; unset = the first of them that the tensor "
     "has."},
    {"tolerate_small_increase", ParameterType::kBool, "true",
     "Whether a rise within increase_threshold_percent is let pass, as SageMaker does."},
    {"worker_policy", ParameterType::kString, "mean",
     "What is judged with several workers: their mean, any (each), or the first."},
}};

constexpr std::array<std::string_view, 1> kCollections = {kLosses};

constexpr std::array<std::string_view, 5> kCauses = {
    "a learning rate that is zero, too low or too high",
    "no gradient arrives: the optimizer has other parameters, or something detaches the loss",
    "labels that do not belong to their inputs",
    "a model that is too small for the task",
    "the model has simply converged",
};

// Which steps a value is one of, in order of preference.
enum Counter : std::size_t { kEvalSteps, kTrainSteps, kGlobalSteps, kCounterCount };

std::optional<Counter> parse_counter(const std::string& mode) {
  if (mode.empty()) return std::nullopt;
  const std::optional<Mode> parsed = mode_from_name(mode);
  if (parsed == Mode::kEval) return kEvalSteps;
  if (parsed == Mode::kTrain) return kTrainSteps;
  if (parsed == Mode::kGlobal) return kGlobalSteps;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rule {}: parameter 'mode' must be EVAL, TRAIN or GLOBAL, not '{}'",
                          kName, mode));
}

struct Point {
  std::int64_t step = 0;
  double value = 0.0;
};

// One loss over the steps of one counter.
class Series {
 public:
  // The finite point that the value of `step` is to be compared with. Nothing yet, or not due:
  // nullopt. `has_any` tells whether any point, finite or not, is that old.
  struct Due {
    bool has_any = false;
    std::optional<Point> older;
  };
  Due due(std::int64_t step, std::int64_t num_steps) {
    if (last_judged_ && step - *last_judged_ < num_steps) return {};
    if (!first_step_ || step - *first_step_ < num_steps) return {};
    while (head_ + 1 < points_.size() && points_[head_ + 1].step <= step - num_steps) ++head_;
    Due due;
    due.has_any = true;
    if (head_ < points_.size() && points_[head_].step <= step - num_steps)
      due.older = points_[head_];
    return due;
  }
  void set_judged(std::int64_t step) { last_judged_ = step; }

  void add(std::int64_t step, double value) {
    if (newest_step_ && step <= *newest_step_) *this = Series();  // counted anew
    if (!first_step_) first_step_ = step;
    newest_step_ = step;
    if (!std::isfinite(value)) return;
    if (head_ >= kCompactAt) {  // points before head_ are never asked for again
      points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    points_.push_back({step, value});
  }
  bool goes_back(std::int64_t step) const { return newest_step_ && step <= *newest_step_; }

 private:
  static constexpr std::size_t kCompactAt = 1024;
  std::optional<std::int64_t> first_step_;
  std::optional<std::int64_t> newest_step_;
  std::optional<std::int64_t> last_judged_;
  std::vector<Point> points_;
  std::size_t head_ = 0;
};

struct Loss {
  std::array<Series, kCounterCount> series;
  std::size_t best_counter = kCounterCount;
};

class LossNotDecreasing : public LossRule {
 public:
  explicit LossNotDecreasing(const Parameters& parameters)
      : LossRule({.collections = collections_of(parameters),
                  .regexes = parameters.get_list("tensor_regex"),
                  .policy =
                      parse_worker_policy(kName, parameters.get_string("worker_policy"), kPolicies),
                  .skips_rising = true}),
        num_steps_(parameters.get_int("num_steps")),
        diff_percent_(parameters.get_float("diff_percent")),
        increase_threshold_percent_(parameters.get_float("increase_threshold_percent")),
        counter_(parse_counter(parameters.get_string("mode"))),
        tolerates_small_increase_(parameters.get_bool("tolerate_small_increase")) {}

 protected:
  bool wants(Mode mode) const override { return counter_of(mode) != kCounterCount; }

  void take(const StepView& view, const LossValue& now, std::vector<Finding>* findings) override {
    if (losses_.size() <= now.id) losses_.resize(now.id + 1);
    Loss& loss = losses_[now.id];
    const std::size_t counter = counter_of(view.mode);
    const std::int64_t step = counter == kGlobalSteps ? view.step : view.mode_step;
    Series& series = loss.series[counter];
    loss.best_counter = std::min(loss.best_counter, counter);
    if (findings != nullptr && counter == loss.best_counter && !series.goes_back(step)) {
      const Series::Due due = series.due(step, num_steps_);
      if (due.older || (due.has_any && !std::isfinite(now.value))) {
        series.set_judged(step);
        judge(now, view, {step, now.value}, due.older, *findings);
      }
    }
    series.add(step, now.value);
  }

 private:
  static std::vector<std::string> collections_of(const Parameters& parameters) {
    std::vector<std::string> collections = parameters.get_list("collection_names");
    const bool has_losses =
        std::find(collections.begin(), collections.end(), kLosses) != collections.end();
    if (parameters.get_bool("use_losses_collection") && !has_losses) {
      collections.insert(collections.begin(), std::string(kLosses));
    }
    if (collections.empty() && !parameters.is_set("tensor_regex")) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rule {}: with use_losses_collection false, collection_names or "
                              "tensor_regex must say what to look at",
                              kName));
    }
    return collections;
  }

  std::size_t counter_of(Mode mode) const {
    if (counter_ == kGlobalSteps) return kGlobalSteps;
    const std::size_t counter = mode == Mode::kEval    ? kEvalSteps
                                : mode == Mode::kTrain ? kTrainSteps
                                                       : kGlobalSteps;
    return !counter_ || counter == *counter_ ? counter : std::size_t{kCounterCount};
  }

  void judge(const LossValue& loss, const StepView& view, const Point& now,
             const std::optional<Point>& older, std::vector<Finding>& findings) const {
    Finding finding = finding_at(view, loss.name, loss.worker);
    if (!std::isfinite(now.value)) {
      finding.statistic = "mean";
      finding.observed = now.value;
      finding.message = fmt::format("{} is {} at step {}: no number to learn from.", loss.name,
                                    std::isnan(now.value) ? "NaN" : "infinite", now.step);
      findings.push_back(std::move(finding));
      return;
    }
    const double scale = older->value == 0.0 ? 1.0 : std::abs(older->value);
    const double fall_percent = 100.0 * (older->value - now.value) / scale;
    if (fall_percent > diff_percent_) return;
    const std::string span = fmt::format("(from {:.6g} at step {} to {:.6g} at step {})",
                                         older->value, older->step, now.value, now.step);
    if (fall_percent >= 0.0) {
      finding.statistic = "fall_percent";
      finding.observed = fall_percent;
      finding.threshold = diff_percent_;
      finding.message = fmt::format(
          "{} fell by {:.3g}% in {} steps {}, not by more than {:g}%: "
          "it has stopped decreasing.",
          loss.name, fall_percent, now.step - older->step, span, diff_percent_);
    } else {
      const double tolerated = tolerates_small_increase_ ? increase_threshold_percent_ : 0.0;
      if (-fall_percent <= tolerated) return;
      finding.statistic = "rise_percent";
      finding.observed = -fall_percent;
      finding.threshold = tolerated;
      finding.message =
          fmt::format("{} rose by {:.3g}% in {} steps {}, more than the {:g}% tolerated.",
                      loss.name, -fall_percent, now.step - older->step, span, tolerated);
    }
    findings.push_back(std::move(finding));
  }

  const std::int64_t num_steps_;
  const double diff_percent_;
  const double increase_threshold_percent_;
  const std::optional<Counter> counter_;
  const bool tolerates_small_increase_;
  std::vector<Loss> losses_;  // [LossValue::id]
};

}  // namespace

const RuleDescriptor& loss_not_decreasing_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A loss that does not fall fast enough, rises, or is no number.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kLoss,
      .advice = {"The training costs time and the model no longer gets better by it.", kCauses,
                 "Look at the learning rate and at the gradients of the same steps; if the loss is "
                 "as low as it should be, stop the training."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<LossNotDecreasing>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
