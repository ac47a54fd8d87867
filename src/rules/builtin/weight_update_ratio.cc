// WeightUpdateRatio: weights that move too far, or hardly, for their size.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/series.h"
#include "rules/shared_parameters.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "WeightUpdateRatio";
constexpr std::string_view kCollection = "weights";
constexpr std::array<std::string_view, 2> kNorms = {"l1", "l2"};

constexpr std::string_view kDoc =
    R"(Compares each weight with an earlier value of itself: the size of the change divided by the
size of the earlier value (plus `epsilon`). Fires when this ratio lies strictly above
`large_threshold` or strictly below `small_threshold`.

The earlier value is that of the previous saved step or, with `num_steps`, that of the oldest saved
step at most num_steps back; the ratio is not divided by the number of steps. All values in between
are kept in memory, so with num_steps save every num_steps. Size is the mean magnitude of the
elements, or with `norm` l2 the root of the mean square. A weight that changes its shape is not
compared.

With raw values the ratio is exact. Without them the statistics of both steps give limits between
which it lies: the rule fires when both limits do, or when all statistics are equal (nothing has
moved), is silent when both limits are fine, and else leaves the weight unjudged.

A frozen layer has the ratio 0 and fires, unless `ignore_unchanged` is set; a weight that starts at
zero fires at its first update. Looks at the collection `weights` at training steps: steps of mode
TRAIN (counted within the mode), or GLOBAL where the script sets no mode. Several workers are judged
one by one.

Source: SageMaker Debugger's rule of that name; `norm` and `ignore_unchanged` are additions.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"num_steps", ParameterType::kInt, "",
     "How many steps the earlier value may be older; unset = that of the previous saved step.", 1},
    {"large_threshold", ParameterType::kFloat, "10.0", "Ratio above which the rule fires.", 0.0,
     1e308, true},
    {"small_threshold", ParameterType::kFloat, "1e-8", "Ratio below which the rule fires.", 0.0},
    {"epsilon", ParameterType::kFloat, "1e-9", "Added to the size of the earlier value.", 0.0,
     1e308, true},
    {"norm", ParameterType::kString, "l1", "What size is: l1 (mean magnitude) or l2."},
    {"ignore_unchanged", ParameterType::kBool, "false",
     "Leave out weights that have not moved at all."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high (large ratio) or too low (small one)",
    "a layer that is frozen, or that the optimizer was not given",
    "a weight that was initialised to zero",
    "gradients that explode or vanish",
};

struct Snapshot {
  std::int64_t step = 0;
  LayoutId layout = 0;
  Statistics statistics;
  std::optional<TensorValues> values;
};

// Between which the ratio lies; equal when it is known.
struct Ratio {
  double low = 0.0;
  double high = 0.0;
};

class WeightUpdateRatio : public TensorRule {
 public:
  explicit WeightUpdateRatio(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .policy = worker_policy_of(kName, parameters)}),
        num_steps_(parameters.get_int("num_steps")),
        large_(parameters.get_float("large_threshold")),
        small_(parameters.get_float("small_threshold")),
        epsilon_(parameters.get_float("epsilon")),
        is_l2_(choice_of(kName, parameters, "norm", kNorms) == 1),
        ignores_unchanged_(parameters.get_bool("ignore_unchanged")) {}

 protected:
  void look_at(const StepView& view, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (row.statistics.finite_count() == 0) return;
    std::deque<Snapshot>& past = snapshots_.at(worker, row.tensor, view.mode);
    Snapshot now{view.mode_step, row.layout, row.statistics, values_of(worker, row)};
    const auto is_too_old = [&] {
      if (past.empty()) return false;
      return num_steps_ == 0 ? past.size() > 1 : past.front().step < now.step - num_steps_;
    };
    while (is_too_old()) past.pop_front();
    if (!past.empty() && past.back().step >= now.step) past.clear();  // counted anew
    if (findings != nullptr && !past.empty() && past.front().layout == now.layout) {
      judge(view, worker, row, past.front(), now, *findings);
    }
    past.push_back(std::move(now));
  }

 private:
  void judge(const StepView& view, const WorkerStep& worker, const StatisticsRow& row,
             const Snapshot& old, const Snapshot& now, std::vector<Finding>& findings) {
    const Ratio ratio = old.values && now.values ? exact_ratio(old, now)
                                                 : ratio_limits(old.statistics, now.statistics);
    if (std::isnan(ratio.low) || (ratio.high == 0.0 && ignores_unchanged_)) return;
    const bool is_large = ratio.low > large_;
    if (!is_large && !(ratio.high < small_)) {
      if (ratio.low < small_ || ratio.high > large_) note_missing_values();
      return;
    }
    Finding finding = finding_at(view, tensor_name(worker, row), worker.worker);
    finding.statistic = "update_ratio";
    finding.observed = is_large ? ratio.low : ratio.high;
    finding.threshold = is_large ? large_ : small_;
    finding.message = fmt::format(
        "From step {} to step {}, {} changed by {}{:.3g} times its size, {} {:g}.", old.step,
        now.step, finding.tensor, is_large && ratio.high > ratio.low ? "at least " : "",
        finding.observed, is_large ? "more than" : "less than", finding.threshold);
    findings.push_back(std::move(finding));
  }

  Ratio exact_ratio(const Snapshot& old, const Snapshot& now) const {
    double change = 0.0;
    double size = 0.0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < now.values->elements.size(); ++i) {
      const double before = old.values->elements[i];
      const double after = now.values->elements[i];
      if (!std::isfinite(before) || !std::isfinite(after)) continue;
      ++count;
      change += is_l2_ ? (after - before) * (after - before) : std::abs(after - before);
      size += is_l2_ ? before * before : std::abs(before);
    }
    change /= static_cast<double>(count);  // of none: NaN
    size /= static_cast<double>(count);
    const double ratio =
        is_l2_ ? std::sqrt(change) / (std::sqrt(size) + epsilon_) : change / (size + epsilon_);
    return {ratio, ratio};
  }

  // By the triangle inequality. Where NaN and infinities are not the same, nothing is said.
  Ratio ratio_limits(const Statistics& old, const Statistics& now) const {
    if (old.finite_count() != now.finite_count()) return {NAN, NAN};
    const auto size_of = [&](const Statistics& s) {
      return is_l2_ ? statistic_value(s, StatisticId::kRms) : s.abs_mean;
    };
    const bool is_same = old.mean == now.mean && old.variance == now.variance &&
                         old.min == now.min && old.max == now.max && old.abs_min == now.abs_min &&
                         old.abs_mean == now.abs_mean && old.zero_count == now.zero_count;
    if (is_same) return {0.0, 0.0};
    const double size = size_of(old) + epsilon_;
    const double least =
        std::max(std::abs(now.mean - old.mean), std::abs(size_of(now) - size_of(old)));
    return {least / size, (size_of(now) + size_of(old)) / size};
  }

  const std::int64_t num_steps_;  // 0 when unset
  const double large_;
  const double small_;
  const double epsilon_;
  const bool is_l2_;
  const bool ignores_unchanged_;
  PerSeries<std::deque<Snapshot>> snapshots_;
};

}  // namespace

const RuleDescriptor& weight_update_ratio_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Weights that move too far, or hardly, for their size.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kOptimizer,
      .advice = {"A weight that changes by many times its size forgets what it has learned; one "
                 "that hardly changes learns nothing.",
                 kCauses,
                 "Look at the learning rate and, for a single layer, at its gradient and at the "
                 "optimizer's parameter groups."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<WeightUpdateRatio>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
