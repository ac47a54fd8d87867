// SaturatedActivation: tanh and sigmoid units that are pinned in their flat region.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "rules/layer_activity.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "SaturatedActivation";
constexpr std::string_view kRegex = ".*tanh_input|.*sigmoid_input";
constexpr std::string_view kTanhInput = "tanh_input";
constexpr std::string_view kSigmoidInput = "sigmoid_input";
constexpr std::array<std::string_view, 3> kNodes = {"element", "channel", "last"};

constexpr std::string_view kDoc =
    R"(Looks at what goes into tanh and sigmoid. A unit is saturated when its input lies strictly
between the activation's two thresholds in less than `threshold_inactivity` percent of the samples
(axis 0). Fires when more than `threshold_layer` percent of a layer's units are saturated. A NaN is
no sample; a unit without samples is saturated.

A unit is each coordinate of a sample; with `node` channel each index of axis 1, with `node` last
each index of the last axis, all other axes being samples. `window` pools the samples of that many
saved steps.

Which activation it is, the collections `tanh_input` and `sigmoid_input` say, which hold the inputs of
modules of those kinds; else the name, if it contains tanh or sigmoid; else `activation`. Tensors of
which it is not known are left out. The default thresholds are SageMaker's; where the slope falls
below 1e-7 is at 8.752 for tanh and 16.118 for sigmoid, which `derivative_threshold` 1e-7 gives.

With raw values the count is exact. Without them minimum, maximum and histogram limit it: the rule
fires when even the kindest distribution over the units leaves too many saturated, is silent when even
the unkindest does not, and else leaves the layer unjudged.

Training steps only: steps of mode TRAIN, or GLOBAL where the script sets no mode. Several workers are
judged one by one.

Source: SageMaker Debugger's rule of that name; `node`, `window`, `activation` and
`derivative_threshold` are additions.)";

constexpr std::array<ParameterDescriptor, 15> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections to look at instead of `tanh_input` and `sigmoid_input`, separated by commas."},
    {"tensor_regex", ParameterType::kList, kRegex,
     "Patterns of tensor names to look at, separated by commas; another than the default replaces "
     "the collections too."},
    {"threshold_tanh_min", ParameterType::kFloat, "-9.4999",
     "Input of tanh down to which (exclusive) a unit is active."},
    {"threshold_tanh_max", ParameterType::kFloat, "9.4999",
     "Input of tanh up to which (exclusive) a unit is active."},
    {"threshold_sigmoid_min", ParameterType::kFloat, "-23",
     "Input of sigmoid down to which (exclusive) a unit is active."},
    {"threshold_sigmoid_max", ParameterType::kFloat, "16.99999",
     "Input of sigmoid up to which (exclusive) a unit is active."},
    {"threshold_tanh", ParameterType::kString, "", "Both thresholds of tanh: \"(min, max)\"."},
    {"threshold_sigmoid", ParameterType::kString, "",
     "Both thresholds of sigmoid: \"(min, max)\"."},
    {"derivative_threshold", ParameterType::kFloat, "",
     "Slope of the activation below which an input is in the flat region; replaces the thresholds.",
     0.0, 0.25, true},
    {"threshold_inactivity", ParameterType::kFloat, "1.0",
     "A unit active in less than this percentage of the samples is saturated.", 0.0, 100.0},
    {"threshold_layer", ParameterType::kFloat, "50.0",
     "Percentage of saturated units of a layer above which the rule fires.", 0.0, 100.0},
    {"activation", ParameterType::kString, "",
     "tanh or sigmoid: what tensors are that neither collection nor name tells."},
    {"node", ParameterType::kString, "element", "What a unit is: element, channel or last."},
    {"window", ParameterType::kInt, "1", "Saved steps whose samples are pooled.", 1},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 2> kCollections = {kTanhInput, kSigmoidInput};

constexpr std::array<std::string_view, 4> kCauses = {
    "weights initialised too large",
    "inputs that are not normalised",
    "a learning rate that is too high: the weights have grown",
    "no normalisation in front of the activation",
};

[[noreturn]] void reject(std::string_view what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("rule {}: {}", kName, what));
}

// "(-9.5, 9.5)", "-9.5, 9.5"
ActiveRange parse_pair(const Parameters& parameters, const std::string& name) {
  std::string text = parameters.get_string(name);
  text.erase(std::remove_if(text.begin(), text.end(),
                            [](char c) { return c == '(' || c == ')' || c == '[' || c == ']'; }),
             text.end());
  const std::vector<std::string> parts = split_list(text);
  const auto low = parse_double(parts.empty() ? "" : parts.front());
  const auto high = parse_double(parts.empty() ? "" : parts.back());
  if (parts.size() != 2 || !low || !high) {
    reject(fmt::format("parameter '{}' must be two numbers: \"(min, max)\"", name));
  }
  return {*low, *high};
}

ActiveRange range_of(const Parameters& parameters, const std::string& name, double half_at_slope) {
  if (half_at_slope > 0.0) return {-half_at_slope, half_at_slope};
  const ActiveRange range =
      parameters.is_set(name)
          ? parse_pair(parameters, name)
          : ActiveRange{parameters.get_float(name + "_min"), parameters.get_float(name + "_max")};
  if (range.low >= range.high) {
    reject(fmt::format("{}_min must be less than {}_max", name, name));
  }
  return range;
}

// tanh' = 1 / cosh^2 x; sigmoid' = 1 / (4 cosh^2 (x / 2)). 0 without a threshold.
double tanh_half(double slope) { return slope > 0.0 ? std::acosh(1.0 / std::sqrt(slope)) : 0.0; }
double sigmoid_half(double slope) {
  return slope > 0.0 ? 2.0 * std::acosh(0.5 / std::sqrt(slope)) : 0.0;
}

enum class Kind : std::uint8_t { kNotAsked, kUnknown, kTanh, kSigmoid };

Kind parse_kind(const std::string& text) {
  if (text.empty()) return Kind::kUnknown;
  if (text == "tanh") return Kind::kTanh;
  if (text == "sigmoid") return Kind::kSigmoid;
  reject(fmt::format("parameter 'activation' must be tanh or sigmoid, not '{}'", text));
}

class SaturatedActivation : public LayerActivityRule {
 public:
  explicit SaturatedActivation(const Parameters& parameters)
      : LayerActivityRule(
            typed_scope(kName, parameters, kRegex,
                        {std::string(kTanhInput), std::string(kSigmoidInput)}),
            {.inactivity_percent = parameters.get_float("threshold_inactivity"),
             .layer_percent = parameters.get_float("threshold_layer"),
             .window = static_cast<std::size_t>(parameters.get_int("window")),
             .unit_kind =
                 UnitKind{static_cast<std::uint8_t>(choice_of(kName, parameters, "node", kNodes))},
             .drops_nan = true}),
        tanh_(range_of(parameters, "threshold_tanh",
                       tanh_half(parameters.get_float("derivative_threshold")))),
        sigmoid_(range_of(parameters, "threshold_sigmoid",
                          sigmoid_half(parameters.get_float("derivative_threshold")))),
        otherwise_(parse_kind(parameters.get_string("activation"))) {}

 protected:
  std::optional<ActiveRange> active_range(const WorkerStep& worker,
                                          const StatisticsRow& row) override {
    Kind& kind = kinds_.at(worker, row.tensor);
    if (kind == Kind::kNotAsked) kind = kind_of(worker.dictionary->tensors[row.tensor]);
    if (kind == Kind::kUnknown) return std::nullopt;
    return kind == Kind::kTanh ? tanh_ : sigmoid_;
  }

  void describe(Finding& finding, const Verdict& verdict) const override {
    finding.statistic = "saturated_percent";
    finding.message = fmt::format(
        "{}{:.3g}% of the {} units of {} are saturated at step {}: outside the flat region in less "
        "than {:g}% of {} samples.",
        verdict.is_exact ? "" : "At least ", finding.observed, verdict.unit_count, finding.tensor,
        finding.step, options().inactivity_percent, verdict.sample_count);
  }

 private:
  Kind kind_of(const TensorInfo& info) const {
    const auto is_in = [&](std::string_view collection) {
      return std::find(info.collections.begin(), info.collections.end(), collection) !=
             info.collections.end();
    };
    if (is_in(kTanhInput)) return Kind::kTanh;
    if (is_in(kSigmoidInput)) return Kind::kSigmoid;
    if (info.name.find("tanh") != std::string::npos) return Kind::kTanh;
    if (info.name.find("sigmoid") != std::string::npos) return Kind::kSigmoid;
    return otherwise_;
  }

  const ActiveRange tanh_;
  const ActiveRange sigmoid_;
  const Kind otherwise_;
  PerTensor<Kind> kinds_;
};

}  // namespace

const RuleDescriptor& saturated_activation_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Tanh and sigmoid units that are pinned in their flat region.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kActivation,
      .advice = {"In the flat region there is next to no gradient: the layer and those before it "
                 "stop learning.",
                 kCauses,
                 "Look at the scale of the weights and of the inputs; normalise in front of the "
                 "activation."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<SaturatedActivation>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
