// AdamSecondMoment: gradients that have outgrown Adam's second moment.
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

constexpr std::string_view kName = "AdamSecondMoment";
constexpr std::string_view kCollection = "optimizer_variables";

constexpr std::string_view kDoc =
    R"(Compares each parameter's gradient g with the second moment v by which Adam divided it
(`optimizer/…/exp_avg_sq`, bias-corrected with `beta2`): RMS = sqrt(mean(g^2 / max(v, eps^2))) is
about 1 while v keeps up. Fires when

- RMS, known from raw values, exceeds `warn_first` for the first and last parameters and those
  that `first_regex` matches (embeddings, heads), or `warn` otherwise (warning); `critical`, or
  the limit for a warning at 3 points in a row (critical);
- mean(g^2) / mean(v) lies outside [0.1, 10] at 20 points in a row: v is stale;
- more than half of the elements have sqrt(v) below `eps` at 20 points in a row: Adam has become
  scaled momentum;
- v is 0 throughout although g is not, after the first update (critical).

Without raw values of both, mean(g^2) / mean(v) stands for the mean of the ratios, and the share
below eps is known only when it is all or nothing. The number of the update, for the correction,
is the step's in its mode. Needs the collections `optimizer_variables` and `gradients`. Training
steps only.

Source: StableAdamW (arXiv 2304.13013): loss spikes follow 1 to 8 iterations after, in the patch
embedding first; 2304.09871, 2506.04805. The limit 2.3 is recalled; the others are ours, and so is
that it takes raw values: a healthy character GPT has 2.4 by means.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"beta2", ParameterType::kFloat, "0.999", "Adam's beta2.", 0.0, 1.0},
    {"eps", ParameterType::kFloat, "1e-8", "Adam's eps.", 0.0},
    {"first_regex", ParameterType::kString, "embed|wte|wpe|patch|head",
     "Pattern of names of parameters with the lower limit."},
    {"warn_first", ParameterType::kFloat, "2.3", "RMS that warns for these.", 0.0},
    {"warn", ParameterType::kFloat, "4", "RMS that warns for the others.", 0.0},
    {"critical", ParameterType::kFloat, "8", "RMS that is critical.", 0.0},
}};

constexpr std::array<std::string_view, 2> kCollections = {kCollection, "gradients"};

constexpr std::array<std::string_view, 4> kCauses = {
    "beta2 of 0.999 with inputs or gradients that change their size suddenly",
    "a batch unlike the others",
    "a learning rate that is too high, or no warm-up",
    "gradients smaller than eps",
};

constexpr std::string_view kPrefix = "optimizer/";
constexpr std::string_view kSuffix = "/exp_avg_sq";
constexpr std::int64_t kCriticalPoints = 3;
constexpr std::int64_t kLongPoints = 20;
constexpr double kStale = 10.0;

class AdamSecondMoment : public TensorRule {
 public:
  explicit AdamSecondMoment(const Parameters& parameters)
      : TensorRule({.regexes = {"^optimizer/.*/exp_avg_sq$"}}),
        beta2_(parameters.get_float("beta2")),
        eps_(parameters.get_float("eps")),
        warn_first_(parameters.get_float("warn_first")),
        warn_(parameters.get_float("warn")),
        critical_(parameters.get_float("critical")),
        first_(parameters.get_string("first_regex")) {}

  std::vector<std::string> wanted_collections() const override {
    return {std::string(kCollection)};
  }

 protected:
  void begin(const StepView&) override { moments_.clear(); }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (skipped_.is_skipped(worker) || row.statistics.finite_count() == 0) return;
    Parameter& parameter = parameters_.at(worker, row.tensor, step.mode);
    if (!parameter.is_known) {
      parameter.is_known = true;
      parameter.is_first = first_.search(tensor_name(worker, row));
    }
    const StatisticsRow* gradient = gradient_of(worker, row, parameter);
    if (gradient == nullptr) {
      note_missing_values();
      return;
    }
    moments_.push_back({&worker, &row, gradient});
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (std::size_t i = 0; i < moments_.size(); ++i) {
      const Moment& moment = moments_[i];
      const bool is_end = i == 0 || i + 1 == moments_.size() ||
                          moments_[i - 1].worker != moment.worker ||
                          moments_[i + 1].worker != moment.worker;
      judge(step, moment, is_end, findings);
    }
  }

 private:
  struct Moment {
    const WorkerStep* worker;
    const StatisticsRow* row;
    const StatisticsRow* gradient;
  };
  struct Parameter {
    bool is_known = false;
    bool is_first = false;
    std::size_t names_seen = 0;
    std::optional<TensorId> gradient;
    Persistence high;
    Persistence very_high;
    Persistence long_high;
    Persistence stale;
    Persistence small;
    Persistence empty;
  };
  struct Ratio {
    double rms = 0.0;          // of the elements' ratios
    double stale = 0.0;        // mean(g^2) / mean(v)
    double share_small = 0.0;  // of sqrt(v) < eps
    bool is_exact = false;
  };

  const StatisticsRow* gradient_of(const WorkerStep& worker, const StatisticsRow& row,
                                   Parameter& parameter) const {
    const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
    if (!parameter.gradient && parameter.names_seen < infos.size()) {
      std::string_view name = tensor_name(worker, row);
      name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
      const std::string wanted = "gradient/" + std::string(name);
      for (; !parameter.gradient && parameter.names_seen < infos.size(); ++parameter.names_seen) {
        if (infos[parameter.names_seen].name != wanted) continue;
        parameter.gradient = static_cast<TensorId>(parameter.names_seen);
      }
    }
    if (!parameter.gradient) return nullptr;
    const std::vector<StatisticsRow>& rows = worker.record->rows;
    const auto at = std::find_if(rows.begin(), rows.end(), [&](const StatisticsRow& one) {
      return one.tensor == *parameter.gradient;
    });
    return at == rows.end() ? nullptr : &*at;
  }

  Ratio ratio_of(const StepView& step, const Moment& moment) const {
    const Statistics& v = moment.row->statistics;
    const Statistics& g = moment.gradient->statistics;
    const auto update = static_cast<double>(step.mode_step + 1);
    const double correction = 1.0 - std::pow(beta2_, update);
    const double squares = g.mean * g.mean + g.variance;
    const double floor = eps_ * eps_;
    Ratio ratio;
    ratio.stale = squares / std::max(v.mean / correction, floor);
    ratio.rms = std::sqrt(ratio.stale);
    ratio.share_small = std::sqrt(v.max / correction) < eps_ ? 1.0 : 0.0;
    // Raw values are decoded only where somebody keeps them.
    if (moment.worker->record->raws.empty() && moment.worker->trial == nullptr) return ratio;
    const std::optional<TensorValues> second = values_of(*moment.worker, *moment.row);
    const std::optional<TensorValues> first = values_of(*moment.worker, *moment.gradient);
    if (!second || !first || first->elements.size() != second->elements.size()) return ratio;
    double sum = 0.0;
    double small = 0.0;
    for (std::size_t i = 0; i < first->elements.size(); ++i) {
      const double corrected = second->elements[i] / correction;
      sum += first->elements[i] * first->elements[i] / std::max(corrected, floor);
      small += corrected < floor ? 1.0 : 0.0;
    }
    const auto count = static_cast<double>(first->elements.size());
    ratio.rms = std::sqrt(sum / count);
    ratio.share_small = small / count;
    ratio.is_exact = true;
    return ratio;
  }

  void judge(const StepView& step, const Moment& moment, bool is_end,
             std::vector<Finding>* findings) {
    Parameter& parameter = parameters_.at(*moment.worker, moment.row->tensor, step.mode);
    const Ratio ratio = ratio_of(step, moment);
    const ScalarPoint point{step,        *moment.worker,
                            *moment.row, tensor_name(*moment.worker, *moment.row),
                            ratio.rms,   findings};
    const bool has_gradient =
        statistic_value(moment.gradient->statistics, StatisticId::kAbsMax) > 0;
    const bool is_empty = moment.row->statistics.max == 0.0 && has_gradient && step.mode_step > 0;
    if (parameter.empty.tell(is_empty, 1, point.is_judged())) {
      point.add("max", 0.0, 0.0, Severity::kCritical,
                fmt::format("{} is 0 throughout at step {}, although there is a gradient.",
                            point.name, step.step));
    }
    if (moment.row->statistics.max > 0.0)
      judge_rms(point, parameter, ratio, is_end || parameter.is_first);
    const bool is_stale = has_gradient && ratio.share_small <= 0.5 &&
                          (ratio.stale > kStale || ratio.stale < 1.0 / kStale);
    if (parameter.stale.tell(is_stale, kLongPoints, point.is_judged())) {
      point.add(
          "ratio", ratio.stale, ratio.stale > 1.0 ? kStale : 1.0 / kStale, Severity::kWarning,
          fmt::format("The squared gradient is {:.3g} times {} on average at step {}, and was "
                      "far from it for {} points: the second moment is stale.",
                      ratio.stale, point.name, step.step, kLongPoints));
    }
    const bool is_small = has_gradient && ratio.share_small > 0.5;
    if (!parameter.small.tell(is_small, kLongPoints, point.is_judged())) return;
    point.add(
        "share", ratio.share_small, 0.5, Severity::kWarning,
        fmt::format("{:.0f} % of the roots of {} lie below eps = {:g} at {} points up to step "
                    "{}: Adam has become scaled momentum.",
                    100.0 * ratio.share_small, point.name, eps_, kLongPoints, step.step));
  }

  void judge_rms(const ScalarPoint& point, Parameter& parameter, const Ratio& ratio,
                 bool is_first) const {
    // Means of sparse gradients, as embeddings have them, scatter too much for the lower limit.
    const double limit = is_first && ratio.is_exact ? warn_first_ : warn_;
    const auto tell = [&](double threshold, Severity severity) {
      point.add("rms", ratio.rms, threshold, severity,
                fmt::format("The gradient at step {} is {:.2f} times the root of {}{}: the second "
                            "moment lags behind.",
                            point.step.step, ratio.rms, point.name,
                            ratio.is_exact ? "" : " (from means, without raw values)"));
    };
    const bool is_very_high = ratio.rms > critical_;
    const bool warns = parameter.high.tell(ratio.rms > limit, 1, point.is_judged());
    const bool alarms = parameter.very_high.tell(is_very_high, 1, point.is_judged());
    const bool lasts =
        parameter.long_high.tell(ratio.rms > limit, kCriticalPoints, point.is_judged());
    if (alarms || lasts) {
      tell(alarms ? critical_ : limit, Severity::kCritical);
    } else if (warns) {
      tell(limit, Severity::kWarning);
    }
  }

  const double beta2_;
  const double eps_;
  const double warn_first_;
  const double warn_;
  const double critical_;
  const Regex first_;
  SkippedSteps skipped_;
  std::vector<Moment> moments_;
  PerSeries<Parameter> parameters_;
};

}  // namespace

const RuleDescriptor& adam_second_moment_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Gradients that have outgrown Adam's second moment.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kOptimizer,
      .advice = {"Adam's steps keep their size only while the second moment knows the gradients; "
                 "when it lags, steps are several times too long, and a loss spike follows.",
                 kCauses,
                 "Lower beta2 (0.95 to 0.98), clip updates as StableAdamW does, or warm up longer "
                 "after a change of data."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<AdamSecondMoment>,
  };
  return kDescriptor;
}

}  // namespace tensortap
