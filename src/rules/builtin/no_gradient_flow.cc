// NoGradientFlow: parameters that were meant to be trained and are not.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "NoGradientFlow";
constexpr std::string_view kGradients = "gradients";
constexpr std::string_view kGradientPrefix = "gradient/";

constexpr std::string_view kDoc =
    R"(Fires for a parameter

- whose gradient is exactly zero at each of the first `first_updates` steps; when it is so for all
  gradients, one critical finding says it;
- that `trainable_regex` matches and that has no gradient at these steps while others do. The
  pattern's default names adapters, since a frozen parameter has none either;
- whose gradient is not zero, but whose statistics do not change by a bit over `unchanged_steps`
  saved steps: the optimizer does not have it. Left out while the learning rate is zero.

Three updates, because the first matrix of a LoRA pair has a zero gradient at the first: the
second begins as zeros. Steps that a loss scaler skipped do not count. Training steps only;
several workers are judged one by one.

Source: adapters that never train: microsoft/LoRA #120, cloneofsimo/lora #26, open-unlearning
#178, transformers PR #23990 (gradient checkpointing without gradients at the input).)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"trainable_regex", ParameterType::kString, "lora_|adapter|prompt_(embeddings|encoder)|ia3_",
     "Pattern of names of parameters that must have a gradient."},
    {"first_updates", ParameterType::kInt, "3", "Saved steps without gradient that fire.", 1},
    {"unchanged_steps", ParameterType::kInt, "10",
     "Saved steps without change, despite a gradient, that fire.", 1},
}};

constexpr std::array<std::string_view, 3> kCollections = {kGradients, "weights", "biases"};

constexpr std::array<std::string_view, 5> kCauses = {
    "a detach(), no_grad() or .data on the way to the loss",
    "gradient checkpointing while the input of the checkpointed part needs no gradient",
    "an optimizer that was given other parameters, or made before they were replaced",
    "a branch of the model that is not used",
    "units that are dead from the start",
};

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool is_same(const Statistics& a, const Statistics& b) {
  return same_bits(a.mean, b.mean) && same_bits(a.variance, b.variance) &&
         same_bits(a.abs_mean, b.abs_mean) && same_bits(a.min, b.min) && same_bits(a.max, b.max);
}

class NoGradientFlow : public TensorRule {
 public:
  explicit NoGradientFlow(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kGradients)},
                    .regexes = {parameters.get_string("trainable_regex")}}),
        first_updates_(parameters.get_int("first_updates")),
        unchanged_steps_(parameters.get_int("unchanged_steps")),
        trainable_(parameters.get_string("trainable_regex")) {}

 protected:
  void begin(const StepView&) override { judged_.clear(); }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (judged_.empty() || judged_.back().worker != &worker) {
      judged_.emplace_back();
      judged_.back().worker = &worker;
    }
    if (is_gradient(worker, row.tensor)) judged_.back().gradients.push_back(&row);
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (const Judged& judged : judged_) {
      if (judged.gradients.empty() || skipped_.is_skipped(*judged.worker)) continue;
      judge_zeros(step, judged, findings);
      judge_weights(step, *judged.worker, findings);
    }
  }

 private:
  struct Judged {
    const WorkerStep* worker = nullptr;
    std::vector<const StatisticsRow*> gradients;
  };
  struct Gradient {
    std::int64_t points = 0;
    std::int64_t zeros = 0;
    std::int64_t newest = -1;  // step
    bool is_nonzero = false;   // at that step
  };
  struct Weight {
    bool is_looked_up = false;
    bool must_have_gradient = false;
    std::size_t names_seen = 0;  // of the dictionary, in search of its gradient
    std::optional<TensorId> gradient;
    std::int64_t missing = 0;
    bool has_last = false;
    bool had_gradient = false;  // at the last point, and a learning rate
    Statistics last;
    Persistence unchanged;
  };

  static bool is_gradient(const WorkerStep& worker, TensorId tensor) {
    return worker.dictionary->tensors[tensor].name.starts_with(kGradientPrefix);
  }

  void judge_zeros(const StepView& step, const Judged& judged, std::vector<Finding>* findings) {
    std::size_t dead = 0;
    std::vector<const StatisticsRow*> due;
    for (const StatisticsRow* row : judged.gradients) {
      Gradient& gradient = gradients_.at(*judged.worker, row->tensor, step.mode);
      const Statistics& s = row->statistics;
      const bool is_zero = s.zero_count == s.count;
      gradient.newest = step.step;
      gradient.is_nonzero = !is_zero;
      if (gradient.points >= first_updates_) {
        dead += gradient.zeros == gradient.points && is_zero ? 1 : 0;
        continue;
      }
      ++gradient.points;
      gradient.zeros += is_zero ? 1 : 0;
      if (gradient.points < first_updates_ || gradient.zeros < first_updates_) continue;
      ++dead;
      due.push_back(row);
    }
    if (due.empty() || findings == nullptr) return;
    if (dead == judged.gradients.size()) {
      Finding& finding = findings->emplace_back(
          finding_at(step, tensor_name(*judged.worker, *due.front()), judged.worker->worker));
      finding.severity = Severity::kCritical;
      finding.statistic = "zero_share";
      finding.observed = finding.threshold = 1.0;
      finding.message = fmt::format(
          "All {} gradients are exactly zero at the first {} updates, up to step {}: nothing is "
          "trained.",
          dead, first_updates_, step.step);
      return;
    }
    for (const StatisticsRow* row : due) add_dead(step, *judged.worker, row->tensor, findings);
  }

  void add_dead(const StepView& step, const WorkerStep& worker, TensorId tensor,
                std::vector<Finding>* findings) const {
    const std::string& name = worker.dictionary->tensors[tensor].name;
    Finding& finding = findings->emplace_back(finding_at(step, name, worker.worker));
    finding.statistic = "zero_share";
    finding.observed = finding.threshold = 1.0;
    finding.message =
        is_gradient(worker, tensor)
            ? fmt::format("{} is exactly zero at its first {} updates, up to step {}.", name,
                          first_updates_, step.step)
            : fmt::format("{} has no gradient at the first {} updates, up to step {}.", name,
                          first_updates_, step.step);
  }

  void judge_weights(const StepView& step, const WorkerStep& worker,
                     std::vector<Finding>* findings) {
    const std::optional<double> rate = rate_.value(worker);
    for (const StatisticsRow& row : worker.record->rows) {
      Weight& weight = weights_.at(worker, row.tensor, step.mode);
      const std::string& name = worker.dictionary->tensors[row.tensor].name;
      if (!weight.is_looked_up) {
        weight.is_looked_up = true;
        weight.must_have_gradient = !name.starts_with(kGradientPrefix) &&
                                    is_parameter(worker, row.tensor) && trainable_.search(name);
      }
      const bool may_have_one =
          weight.gradient || weight.must_have_gradient || is_parameter(worker, row.tensor);
      if (!may_have_one) continue;
      look_up_gradient(worker, name, weight);
      const Gradient* gradient =
          weight.gradient ? &gradients_.at(worker, *weight.gradient, step.mode) : nullptr;
      const bool has_one = gradient != nullptr && gradient->newest == step.step;
      if (weight.must_have_gradient && weight.missing >= 0) {
        weight.missing = has_one ? -1 : weight.missing + 1;
        if (weight.missing >= first_updates_ && findings != nullptr) {
          add_dead(step, worker, row.tensor, findings);
          weight.missing = -1;
        }
      }
      judge_change(step, worker, row, weight, findings);
      weight.had_gradient = has_one && gradient->is_nonzero && rate.value_or(1.0) != 0.0;
      weight.last = row.statistics;
      weight.has_last = true;
    }
  }

  // Against the weight of the last point, whose gradient should have changed it since.
  void judge_change(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                    Weight& weight, std::vector<Finding>* findings) const {
    const bool is_stuck =
        weight.has_last && weight.had_gradient && is_same(weight.last, row.statistics);
    if (!weight.unchanged.tell(is_stuck, unchanged_steps_, findings != nullptr)) return;
    Finding& finding =
        findings->emplace_back(finding_at(step, tensor_name(worker, row), worker.worker));
    finding.statistic = "unchanged_steps";
    finding.observed = finding.threshold = static_cast<double>(unchanged_steps_);
    finding.message = fmt::format(
        "{} has a gradient, but has not changed over {} saved steps up to step {}: the optimizer "
        "does not update it.",
        finding.tensor, unchanged_steps_, step.step);
  }

  bool is_parameter(const WorkerStep& worker, TensorId tensor) {
    return parameters_.selects(worker, tensor) && !is_gradient(worker, tensor);
  }

  static void look_up_gradient(const WorkerStep& worker, const std::string& name, Weight& weight) {
    const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
    for (; !weight.gradient && weight.names_seen < infos.size(); ++weight.names_seen) {
      const std::string_view other = infos[weight.names_seen].name;
      if (other.starts_with(kGradientPrefix) && other.substr(kGradientPrefix.size()) == name) {
        weight.gradient = static_cast<TensorId>(weight.names_seen);
      }
    }
  }

  const std::int64_t first_updates_;
  const std::int64_t unchanged_steps_;
  const Regex trainable_;
  TensorSelector parameters_{{"weights", "biases"}, {}};
  SkippedSteps skipped_;
  NamedScalar rate_{"^learning_rate/"};
  std::vector<Judged> judged_;
  PerSeries<Gradient> gradients_;
  PerSeries<Weight> weights_;
};

}  // namespace

const RuleDescriptor& no_gradient_flow_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Parameters that no gradient reaches, or that the optimizer does not update.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kGradient,
      .advice = {"A parameter that gets no gradient, or that the optimizer does not have, stays "
                 "what it was; the loss may fall all the same.",
                 kCauses,
                 "Print requires_grad and grad of the parameter after backward(), and look for it "
                 "among the optimizer's parameter groups."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<NoGradientFlow>,
  };
  return kDescriptor;
}

}  // namespace tensortap
