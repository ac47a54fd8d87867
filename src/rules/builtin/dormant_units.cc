// DormantUnits: units that hardly respond, whatever the activation.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "DormantUnits";

constexpr std::string_view kDoc =
    R"(A unit's score is the mean of its magnitudes over samples, divided by the mean of that over
the units of its layer; it is dormant when its score is at most `tau`. All units of a layer that is
all zero are. Fires when the share of dormant units exceeds `max_share`, or exceeds the layer's own
early share (the mean of its first 5 points) by more than `max_rise`, at `persist` points in a row.
DeadRelu looks at rectifiers alone, and only for units that are never active; this works for any
activation.

Units are the indices of the last axis, or of axis 1 where there are four axes or more
(convolutions). Looks at the collection `relu_output` and at names that `tensor_regex` matches, and
needs raw values.

Source: arXiv 2302.12902 (ReDo), with its tau; the limits on the share are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"tensor_regex", ParameterType::kString,
     "(?i)([rgse]e?lu|silu|tanh|sigmoid|activation|act_fn|act)(\\.?\\d+)?_output_\\d+$",
     "Pattern of names of activations."},
    {"tau", ParameterType::kFloat, "0.025", "Score up to which a unit is dormant.", 0.0},
    {"max_share", ParameterType::kFloat, "0.3", "Share of dormant units that fires.", 0.0, 1.0},
    {"max_rise", ParameterType::kFloat, "0.2", "Rise of the share over the early one that fires.",
     0.0, 1.0},
    {"persist", ParameterType::kInt, "5", "Points in a row that fire.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {"relu_output"};

constexpr std::array<std::string_view, 4> kCauses = {
    "targets that move, as in value-based reinforcement learning and continual learning",
    "many updates for each new sample (a high replay ratio)",
    "a learning rate that is too high",
    "a layer that is far wider than the task needs",
};

struct DormantCount {
  std::size_t dormant = 0;
  std::size_t units = 0;
};

// Nothing for a value that has no axis.
std::optional<DormantCount> count_dormant(const TensorValues& values, double tau) {
  if (values.shape.empty() || values.elements.empty()) return std::nullopt;
  const bool is_image = values.shape.size() >= 4;
  const auto units = static_cast<std::size_t>(is_image ? values.shape[1] : values.shape.back());
  std::size_t inner = 1;  // elements between one unit and the next
  for (std::size_t axis = 2; is_image && axis < values.shape.size(); ++axis) {
    inner *= static_cast<std::size_t>(values.shape[axis]);
  }
  std::vector<double> sums(units, 0.0);
  double total = 0.0;
  for (std::size_t i = 0; i < values.elements.size(); ++i) {
    const double magnitude = std::abs(values.elements[i]);
    if (!std::isfinite(magnitude)) continue;
    sums[i / inner % units] += magnitude;
    total += magnitude;
  }
  DormantCount count{0, units};
  const double limit = tau * total / static_cast<double>(units);
  for (const double sum : sums) count.dormant += sum <= limit ? 1 : 0;
  return count;
}

class DormantUnits : public TensorRule {
 public:
  explicit DormantUnits(const Parameters& parameters)
      : TensorRule(
            {.collections = {"relu_output"}, .regexes = {parameters.get_string("tensor_regex")}}),
        tau_(parameters.get_float("tau")),
        max_share_(parameters.get_float("max_share")),
        max_rise_(parameters.get_float("max_rise")),
        persist_(parameters.get_int("persist")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) {
      note_missing_values();
      return;
    }
    const std::optional<DormantCount> count = count_dormant(*values, tau_);
    if (!count) return;
    const double share = static_cast<double>(count->dormant) / static_cast<double>(count->units);
    Layer& layer = layers_.at(worker, row.tensor, step.mode);
    const bool has_early = layer.early.is_full();
    const double early = has_early ? layer.early.mean() : 1.0;
    if (!has_early) layer.early.push(share);
    const double limit = std::fmin(max_share_, early + max_rise_);
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), share, findings};
    if (!layer.dormant.tell(share > limit + kRoom, persist_, point.is_judged())) return;
    point.add(
        "dormant_share", share, limit, Severity::kWarning,
        fmt::format("{} of the {} units of {} are dormant at step {}: their mean magnitude is "
                    "at most {:g} of the layer's.{}",
                    count->dormant, count->units, point.name, step.step, tau_,
                    has_early ? fmt::format(" At the start it was {:.3g} %.", 100.0 * early)
                              : std::string()));
  }

 private:
  static constexpr double kRoom = 1e-12;

  struct Layer {
    RollingWindow early{5};
    Persistence dormant;
  };

  const double tau_;
  const double max_share_;
  const double max_rise_;
  const std::int64_t persist_;
  PerSeries<Layer> layers_;
};

}  // namespace

const RuleDescriptor& dormant_units_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Units that hardly respond, whatever the activation.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"Dormant units add nothing, and a network that has many of them learns new things "
                 "badly.",
                 kCauses,
                 "Lower the learning rate or the replay ratio, reset dormant units, or add "
                 "normalisation."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<DormantUnits>,
  };
  return kDescriptor;
}

}  // namespace tensortap
