// LossNotDecreasing: a loss that does not fall fast enough, rises, or is no number.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "rules/registry.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

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

// "validation-auc", "val_accuracy", "train-map@5": the last word that is neither a number nor an
// aggregate names the metric.
bool is_meant_to_rise(std::string_view name) {
  constexpr std::array<std::string_view, 6> kRising = {"auc",  "aucpr", "map",
                                                       "ndcg", "pre",   "accuracy"};
  constexpr std::array<std::string_view, 3> kAggregates = {"mean", "std", "output"};
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  const auto last = std::find_if(words.rbegin(), words.rend(), [&](const std::string& word) {
    return !word.empty() && !parse_int(word) &&
           std::find(kAggregates.begin(), kAggregates.end(), word) == kAggregates.end();
  });
  return last != words.rend() && std::find(kRising.begin(), kRising.end(), *last) != kRising.end();
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
  std::string name;
  std::string worker;  // that it belongs to; "" when it is shared
  std::array<Series, kCounterCount> series;
  std::size_t best_counter = kCounterCount;
  // What the workers have of it at the current step.
  double sum = 0.0;
  std::uint32_t count = 0;
  std::string_view only_worker;
};

class LossNotDecreasing : public Rule {
 public:
  explicit LossNotDecreasing(const Parameters& parameters)
      : num_steps_(parameters.get_int("num_steps")),
        diff_percent_(parameters.get_float("diff_percent")),
        increase_threshold_percent_(parameters.get_float("increase_threshold_percent")),
        counter_(parse_counter(parameters.get_string("mode"))),
        tolerates_small_increase_(parameters.get_bool("tolerate_small_increase")),
        policy_(parse_worker_policy(kName, parameters.get_string("worker_policy"), kPolicies)),
        selector_(collections_of(parameters), parameters.get_list("tensor_regex")) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    look_at(step, &findings);
  }
  void observe(const StepView& step) override { look_at(step, nullptr); }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = names_.size();
    return coverage;
  }
  std::string selection() const override { return selector_.description(); }
  std::vector<std::string> wanted_collections() const override { return selector_.collections(); }

 private:
  static constexpr std::int32_t kNotAsked = -1;
  static constexpr std::int32_t kNotJudged = -2;

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

  // A null `findings`: remember only.
  void look_at(const StepView& step, std::vector<Finding>* findings) {
    const std::size_t counter = counter_of(step.mode);
    if (counter == kCounterCount) return;
    touched_.clear();
    std::uint64_t count = 0;
    for (const WorkerStep& worker : step.workers) count += gather(worker);
    if (findings != nullptr) {
      coverage_.checked_tensor_steps += count;
      ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
    }
    // By name: the order of rows is not the same in a running process and in a trace.
    std::sort(touched_.begin(), touched_.end(), [&](std::int32_t a, std::int32_t b) {
      const Loss& left = losses_[static_cast<std::size_t>(a)];
      const Loss& right = losses_[static_cast<std::size_t>(b)];
      return std::tie(left.name, left.worker) < std::tie(right.name, right.worker);
    });
    for (const std::int32_t index : touched_) {
      Loss& loss = losses_[static_cast<std::size_t>(index)];
      take(loss, step, counter, findings);
      loss.count = 0;
    }
  }

  std::size_t counter_of(Mode mode) const {
    if (counter_ == kGlobalSteps) return kGlobalSteps;
    const std::size_t counter = mode == Mode::kEval    ? kEvalSteps
                                : mode == Mode::kTrain ? kTrainSteps
                                                       : kGlobalSteps;
    return !counter_ || counter == *counter_ ? counter : std::size_t{kCounterCount};
  }

  // Adds a worker's losses of the step to their accumulators; gives their number.
  std::uint64_t gather(const WorkerStep& worker) {
    std::uint64_t count = 0;
    for (const StatisticsRow& row : worker.record->rows) {
      if (row.statistics.count != 1) continue;
      const std::int32_t index = loss_of(worker, row);
      if (index == kNotJudged) continue;
      Loss& loss = losses_[static_cast<std::size_t>(index)];
      if (policy_ == WorkerPolicy::kFirst && loss.count > 0) continue;
      ++count;
      if (loss.count == 0) {
        loss.sum = 0.0;
        loss.only_worker = worker.worker;
        touched_.push_back(index);
      }
      ++loss.count;
      loss.sum += single_value(row).value_or(0.0);
    }
    return count;
  }

  std::int32_t loss_of(const WorkerStep& worker, const StatisticsRow& row) {
    if (indices_.size() <= worker.worker_index) indices_.resize(worker.worker_index + 1);
    std::vector<std::int32_t>& indices = indices_[worker.worker_index];
    if (indices.size() <= row.tensor) {
      indices.resize(worker.dictionary->tensors.size(), kNotAsked);
    }
    std::int32_t& index = indices[row.tensor];
    if (index == kNotAsked) index = find_or_add(worker, row);
    return index;
  }

  std::int32_t find_or_add(const WorkerStep& worker, const StatisticsRow& row) {
    const std::string& name = worker.dictionary->tensors[row.tensor].name;
    const DType dtype = worker.dictionary->layouts[row.layout].dtype;
    if (dtype_is_complex(dtype) || is_meant_to_rise(name)) return kNotJudged;
    if (!selector_.selects(worker, row.tensor)) return kNotJudged;
    names_.insert(name);
    const std::string_view owner = policy_ == WorkerPolicy::kAny ? worker.worker : "";
    const auto known = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& loss) {
      return loss.name == name && loss.worker == owner;
    });
    if (known != losses_.end()) return static_cast<std::int32_t>(known - losses_.begin());
    losses_.emplace_back();
    losses_.back().name = name;
    losses_.back().worker = owner;
    return static_cast<std::int32_t>(losses_.size() - 1);
  }

  void take(Loss& loss, const StepView& view, std::size_t counter, std::vector<Finding>* findings) {
    const double value = loss.sum / loss.count;
    const std::int64_t step = counter == kGlobalSteps ? view.step : view.mode_step;
    Series& series = loss.series[counter];
    loss.best_counter = std::min(loss.best_counter, counter);
    if (findings != nullptr && counter == loss.best_counter && !series.goes_back(step)) {
      const Series::Due due = series.due(step, num_steps_);
      if (due.older || (due.has_any && !std::isfinite(value))) {
        series.set_judged(step);
        judge(loss, view, {step, value}, due.older, *findings);
      }
    }
    series.add(step, value);
  }

  void judge(const Loss& loss, const StepView& view, const Point& now,
             const std::optional<Point>& older, std::vector<Finding>& findings) const {
    Finding finding =
        finding_at(view, loss.name, loss.count == 1 ? loss.only_worker : std::string_view());
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
  const WorkerPolicy policy_;
  TensorSelector selector_;
  Coverage coverage_;
  std::set<std::string, std::less<>> names_;
  std::vector<Loss> losses_;
  std::vector<std::vector<std::int32_t>> indices_;  // [worker_index][tensor] -> losses_
  std::vector<std::int32_t> touched_;
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
