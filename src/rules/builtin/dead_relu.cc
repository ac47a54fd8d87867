// DeadRelu: rectified units that no longer output anything.
#include <array>
#include <limits>

#include <fmt/core.h>

#include "rules/layer_activity.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "DeadRelu";
constexpr std::string_view kRegex = ".*relu_output";
constexpr std::string_view kTyped = "relu_output";
constexpr std::array<std::string_view, 3> kNodes = {"element", "channel", "last"};

constexpr std::string_view kDoc =
    R"(A unit is dead when its output is above zero in less than `threshold_inactivity` percent of the
samples (axis 0); NaN is not above zero. Fires when more than `threshold_layer` percent of a layer's
units are dead.

A unit is each coordinate of a sample; with `node` channel each index of axis 1, with `node` last
each index of the last axis, all other axes being samples. `window` pools the samples of that many
saved steps. With fewer than 100 samples one active sample keeps a unit alive, so choose the window
to give 200 or more.

With raw values the count is exact. Without them the number of positive elements (from the zero count
or the histogram) limits it: the rule fires when even the kindest distribution over the units leaves
too many dead, is silent when even the unkindest does not, and else leaves the layer unjudged.

Looks at the collection `relu_output`, which holds the outputs of modules that are rectifiers, and at
names that `tensor_regex` matches, at training steps: steps of mode TRAIN, or GLOBAL where the script
sets no mode. Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name; `node` and `window` are additions.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections to look at instead of `relu_output`, separated by commas."},
    {"tensor_regex", ParameterType::kList, kRegex,
     "Patterns of tensor names to look at, separated by commas; another than the default replaces "
     "the collection too."},
    {"threshold_inactivity", ParameterType::kFloat, "1.0",
     "A unit active in less than this percentage of the samples is dead.", 0.0, 100.0},
    {"threshold_layer", ParameterType::kFloat, "50.0",
     "Percentage of dead units of a layer above which the rule fires.", 0.0, 100.0},
    {"node", ParameterType::kString, "element", "What a unit is: element, channel or last."},
    {"window", ParameterType::kInt, "1", "Saved steps whose samples are pooled.", 1},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 1> kCollections = {kTyped};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high: one large step pushed the biases far below zero",
    "biases or weights that were initialised badly",
    "inputs that are not normalised",
    "a layer that is zero further up: its units are dead too",
};

class DeadRelu : public LayerActivityRule {
 public:
  explicit DeadRelu(const Parameters& parameters)
      : LayerActivityRule(typed_scope(kName, parameters, kRegex, {std::string(kTyped)}),
                          {.inactivity_percent = parameters.get_float("threshold_inactivity"),
                           .layer_percent = parameters.get_float("threshold_layer"),
                           .window = static_cast<std::size_t>(parameters.get_int("window")),
                           .unit_kind = UnitKind{static_cast<std::uint8_t>(
                               choice_of(kName, parameters, "node", kNodes))}}) {}

 protected:
  std::optional<ActiveRange> active_range(const WorkerStep&, const StatisticsRow&) override {
    return ActiveRange{0.0, std::numeric_limits<double>::infinity()};
  }

  void describe(Finding& finding, const Verdict& verdict) const override {
    finding.statistic = "dead_percent";
    finding.message = fmt::format(
        "{}{:.3g}% of the {} units of {} are dead at step {}: above zero in less than {:g}% of {} "
        "samples.",
        verdict.is_exact ? "" : "At least ", finding.observed, verdict.unit_count, finding.tensor,
        finding.step, options().inactivity_percent, verdict.sample_count);
  }
};

}  // namespace

const RuleDescriptor& dead_relu_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Rectified units that no longer output anything.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kActivation,
      .advice = {"A dead unit gets no gradient, so it stays dead; the layer has lost its capacity.",
                 kCauses,
                 "Lower the learning rate or warm it up, look at the biases, or take a leaky "
                 "activation."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<DeadRelu>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
