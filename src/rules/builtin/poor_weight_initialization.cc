// PoorWeightInitialization: signs of a bad initial scale in the first steps.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/shared_parameters.h"
#include "rules/tensor_selector.h"
#include "rules/values.h"
#include "tensor/quantile.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "PoorWeightInitialization";
constexpr std::string_view kRegex = ".*relu_input";
constexpr std::string_view kTyped = "relu_input";
constexpr std::string_view kGradients = "gradients";
constexpr std::string_view kLosses = "losses";
constexpr std::array<std::string_view, 4> kGradientChecks = {"auto", "on", "relative", "off"};
constexpr std::uint64_t kFewestElements = 20;  // of a gradient whose quantiles mean something
constexpr double kRelativeLimit = 1e-3;
constexpr double kLeastVariance = 1e-30;

constexpr std::string_view kDoc =
    R"(Looks at the first `steps` saved training steps (of mode TRAIN, or GLOBAL where the script sets
no mode; from start_step on) for three signs:

- the variance of the activation inputs differs between layers: the largest is more than `threshold`
  times the smallest. A layer that holds NaN or infinities counts as infinitely varied;
- gradients are confined to a narrow range: between the 5th and the 95th percentile of some gradient
  lie less than `distribution_range` (gradients of 20 elements or more);
- a loss has not beaten its best value for `patience` of these steps.

Activation inputs are the collection `relu_input`, which holds the inputs of modules that are
rectifiers, and what `activation_inputs_regex` matches; gradients and losses are the collections of
those names. All must be saved at each of the first steps.

The gradients of most networks of today are narrower than 0.001, so the second check fires for healthy
ones too. `check_gradients` relative compares the narrowest range with the median of all layers
instead and fires below a thousandth of it; off leaves the check out; on and auto are as documented.

Percentiles come from the raw values; without them from the histogram, to half an octave; without
that, from the least and the largest element when even these lie close enough.

Source: SageMaker Debugger's rule of that name; `check_gradients` is an addition.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"activation_inputs_regex", ParameterType::kList, kRegex,
     "Patterns of names of activation inputs, separated by commas; another than the default "
     "replaces the collection too."},
    {"threshold", ParameterType::kFloat, "10.0",
     "Ratio of the largest to the smallest variance above which the rule fires.", 1.0, 1e308, true},
    {"distribution_range", ParameterType::kFloat, "0.001",
     "Width between the 5th and 95th percentile of a gradient below which the rule fires.", 0.0,
     1e308, true},
    {"patience", ParameterType::kInt, "5", "Steps without a better loss.", 1},
    {"steps", ParameterType::kInt, "10", "Saved steps, from the first, that are looked at.", 1},
    {"check_gradients", ParameterType::kString, "auto",
     "How the ranges of gradients are judged: auto or on (as documented), relative, off."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 3> kCollections = {kTyped, kGradients, kLosses};

constexpr std::array<std::string_view, 4> kCauses = {
    "weights drawn with a scale that does not fit the width of the layers",
    "inputs that are not normalised",
    "no normalisation layers in a deep network",
    "a learning rate that is too high for the first steps",
};

struct Best {
  double value = std::numeric_limits<double>::infinity();
  std::int64_t stall = 0;
};

class PoorWeightInitialization : public Rule {
 public:
  explicit PoorWeightInitialization(const Parameters& parameters)
      : threshold_(parameters.get_float("threshold")),
        range_(parameters.get_float("distribution_range")),
        patience_(parameters.get_int("patience")),
        steps_(parameters.get_int("steps")),
        gradient_check_(choice_of(kName, parameters, "check_gradients", kGradientChecks)),
        policy_(worker_policy_of(kName, parameters)),
        activations_(parameters.get_string("activation_inputs_regex") == kRegex
                         ? std::vector<std::string>{std::string(kTyped)}
                         : std::vector<std::string>{},
                     parameters.get_list("activation_inputs_regex")),
        gradients_({std::string(kGradients)}, {}),
        losses_({std::string(kLosses)}, {}) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    if (step.mode != Mode::kTrain && step.mode != Mode::kGlobal) return;
    if (seen_steps_ >= steps_) return;
    std::uint64_t count = 0;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      gather(worker);
      count += found_activations_.size() + found_gradients_.size() + found_losses_.size();
      check_activations(step, worker, findings);
      check_gradients(step, worker, findings);
      check_losses(step, worker, findings);
    }
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
    if (count > 0) ++seen_steps_;
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors =
        activations_.matched_tensors() + gradients_.matched_tensors() + losses_.matched_tensors();
    return coverage;
  }
  std::string selection() const override {
    return fmt::format("{} (activation inputs), collection gradients or collection losses",
                       activations_.description());
  }
  std::vector<std::string> wanted_collections() const override {
    return {std::string(kTyped), std::string(kGradients), std::string(kLosses)};
  }

 private:
  using Rows = std::vector<const StatisticsRow*>;

  void gather(const WorkerStep& worker) {
    for (Rows* rows : {&found_activations_, &found_gradients_, &found_losses_}) rows->clear();
    for (const StatisticsRow& row : worker.record->rows) {
      if (activations_.selects(worker, row.tensor)) found_activations_.push_back(&row);
      if (gradients_.selects(worker, row.tensor)) found_gradients_.push_back(&row);
      if (losses_.selects(worker, row.tensor)) found_losses_.push_back(&row);
    }
    for (Rows* rows : {&found_activations_, &found_gradients_, &found_losses_}) {
      std::sort(rows->begin(), rows->end(), [](const StatisticsRow* a, const StatisticsRow* b) {
        return a->tensor < b->tensor;
      });
    }
  }

  static double variance_of(const StatisticsRow& row) {
    const Statistics& s = row.statistics;
    return s.finite_count() == s.count ? s.variance : std::numeric_limits<double>::infinity();
  }

  void check_activations(const StepView& step, const WorkerStep& worker,
                         std::vector<Finding>& findings) const {
    if (found_activations_.size() < 2) return;
    const auto by_variance = [](const StatisticsRow* a, const StatisticsRow* b) {
      return variance_of(*a) < variance_of(*b);
    };
    const auto [least, most] =
        std::minmax_element(found_activations_.begin(), found_activations_.end(), by_variance);
    const double low = variance_of(**least);
    const double high = variance_of(**most);
    const double ratio = std::isinf(high) ? high : high / std::max(low, kLeastVariance);
    if (!(ratio > threshold_)) return;
    Finding finding = finding_at(step, tensor_name(worker, **most), worker.worker);
    finding.statistic = "variance_ratio";
    finding.observed = ratio;
    finding.threshold = threshold_;
    finding.message = fmt::format(
        "The variance of activation inputs differs {:.3g} times between layers at step {}, more "
        "than {:g}: {:.3g} in {}, {:.3g} in {}.",
        ratio, finding.step, threshold_, high, finding.tensor, low, tensor_name(worker, **least));
    findings.push_back(std::move(finding));
  }

  void check_gradients(const StepView& step, const WorkerStep& worker,
                       std::vector<Finding>& findings) {
    if (gradient_check_ == 3) return;
    std::vector<std::pair<double, const StatisticsRow*>> widths;
    for (const StatisticsRow* row : found_gradients_) {
      if (row->statistics.finite_count() < kFewestElements) continue;
      if (const std::optional<double> width = width_of(worker, *row)) {
        widths.emplace_back(*width, row);
      } else {
        ++coverage_.valueless_tensor_steps;
      }
    }
    if (widths.empty()) return;
    const bool is_relative = gradient_check_ == 2;
    std::stable_sort(widths.begin(), widths.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const double limit = is_relative ? kRelativeLimit * widths[widths.size() / 2].first : range_;
    const auto& [width, row] = widths.front();
    if (!(width < limit)) return;
    Finding finding = finding_at(step, tensor_name(worker, *row), worker.worker);
    finding.statistic = "gradient_range";
    finding.observed = width;
    finding.threshold = limit;
    finding.message = fmt::format(
        "The gradient {} is confined to a range of {:.3g} (5th to 95th percentile) at step {}, "
        "less than {:.3g}{}.",
        finding.tensor, width, finding.step, limit,
        is_relative ? ", a thousandth of the median of all layers" : "");
    findings.push_back(std::move(finding));
  }

  // Between the 5th and the 95th percentile of the finite elements.
  std::optional<double> width_of(const WorkerStep& worker, const StatisticsRow& row) const {
    const Statistics& s = row.statistics;
    if (std::optional<TensorValues> values = values_of(worker, row)) {
      std::vector<double>& elements = values->elements;
      std::erase_if(elements, [](double element) { return !std::isfinite(element); });
      return quantile(elements, 0.95) - quantile(elements, 0.05);
    }
    if (row.has_histogram) {
      const auto low = approximate_quantile(s, row.histogram, 0.05);
      const auto high = approximate_quantile(s, row.histogram, 0.95);
      if (low && high) return *high - *low;
    }
    if (s.max - s.min < range_) return s.max - s.min;
    return std::nullopt;
  }

  // Linear between neighbours, as NumPy's default. Reorders.
  static double quantile(std::vector<double>& elements, double share) {
    const double place = share * static_cast<double>(elements.size() - 1);
    const auto index = static_cast<std::ptrdiff_t>(place);
    const auto at = elements.begin() + index;
    std::nth_element(elements.begin(), at, elements.end());
    if (at + 1 == elements.end()) return *at;
    const double next = *std::min_element(at + 1, elements.end());
    return *at + (place - static_cast<double>(index)) * (next - *at);
  }

  void check_losses(const StepView& step, const WorkerStep& worker,
                    std::vector<Finding>& findings) {
    for (const StatisticsRow* row : found_losses_) {
      const std::optional<double> value = single_value(*row);
      if (!value) continue;
      const std::string& name = tensor_name(worker, *row);
      Best& best = best_[{std::string(worker.worker), name}];
      const bool is_better = *value < best.value;
      best.stall = is_better ? 0 : best.stall + 1;
      if (is_better) best.value = *value;
      if (best.stall < patience_) continue;
      Finding finding = finding_at(step, name, worker.worker);
      finding.statistic = "steps_without_better_loss";
      finding.observed = static_cast<double>(best.stall);
      finding.threshold = static_cast<double>(patience_);
      finding.message = fmt::format(
          "{} has not beaten {:.4g} for {} of the first steps, up to step {}: the training does "
          "not take off.",
          name, best.value, best.stall, finding.step);
      findings.push_back(std::move(finding));
    }
  }

  const double threshold_;
  const double range_;
  const std::int64_t patience_;
  const std::int64_t steps_;
  const std::size_t gradient_check_;  // of kGradientChecks
  const WorkerPolicy policy_;
  TensorSelector activations_;
  TensorSelector gradients_;
  TensorSelector losses_;
  Coverage coverage_;
  std::int64_t seen_steps_ = 0;
  std::map<std::pair<std::string, std::string>, Best> best_;  // by worker and name
  // Of the worker and step that is looked at.
  Rows found_activations_;
  Rows found_gradients_;
  Rows found_losses_;
};

}  // namespace

const RuleDescriptor& poor_weight_initialization_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Signs of a bad initial scale of the weights in the first steps.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kWeights,
      .advice =
          {"Signals and gradients that grow or shrink from layer to layer keep a network from "
           "learning at all.",
           kCauses,
           "Initialise by the width of the layers (He for rectifiers, Glorot for tanh) and "
           "normalise the inputs."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<PoorWeightInitialization>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
