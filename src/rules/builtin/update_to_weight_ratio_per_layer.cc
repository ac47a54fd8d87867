// UpdateToWeightRatioPerLayer: layers that are moved too far, hardly at all, or unlike the others.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "UpdateToWeightRatioPerLayer";
constexpr std::string_view kCollection = "update_ratios";
constexpr std::string_view kPrefix = "update_ratio/";

constexpr std::string_view kDoc =
    R"(Takes r = log10 of the size of a step's update over the size of the weight, for each weight
(scalars `update_ratio/…` of the collection `update_ratios`; ask the hook for it). After
`warmup_steps` points it warns when, at `persist` points in a row, r lies outside [`low`, `high`],
or more than `max_distance` decades from the median of all layers of the step. Three layers at
least are needed for that. Only names that `tensor_regex` matches are judged, by default weights
and no biases, and of these no vectors (scales of normalisations) where the weights themselves are
recorded. An update of exactly zero, as with a learning rate of 0, is no point.

Source: Karpathy's makemore, part 3: r should sit near -3. That page divides standard deviations;
the hook divides l2 norms, which is the same for weights around zero.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"tensor_regex", ParameterType::kString, "^update_ratio/.*weight$",
     "Pattern of names among the update ratios."},
    {"low", ParameterType::kFloat, "-5", "Least log10 of update over weight."},
    {"high", ParameterType::kFloat, "-1", "Greatest log10 of update over weight."},
    {"max_distance", ParameterType::kFloat, "1", "Decades from the median of all layers.", 0.0},
    {"persist", ParameterType::kInt, "10", "Points in a row that fire.", 1},
    {"warmup_steps", ParameterType::kInt, "0", "Points at the start that are not judged.", 0},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate for one group of parameters that is off by orders of magnitude",
    "a layer whose initial weights are far too large or too small",
    "a learning rate that is too high or too low altogether",
    "weights in bfloat16 or float16 that swallow small updates",
};

class UpdateToWeightRatioPerLayer : public TensorRule {
 public:
  explicit UpdateToWeightRatioPerLayer(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)}}),
        low_(parameters.get_float("low")),
        high_(parameters.get_float("high")),
        max_distance_(parameters.get_float("max_distance")),
        persist_(parameters.get_int("persist")),
        warmup_steps_(parameters.get_int("warmup_steps")),
        names_({}, {parameters.get_string("tensor_regex")}) {}

 protected:
  void begin(const StepView&) override { layers_.clear(); }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (!names_.selects(worker, row.tensor) || !(row.statistics.mean > 0.0)) return;
    if (!std::isfinite(row.statistics.mean) || skipped_.is_skipped(worker)) return;
    if (is_vector(worker, row.tensor)) return;
    layers_.push_back({&worker, &row, std::log10(row.statistics.mean)});
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (std::size_t first = 0; first < layers_.size();) {
      std::size_t last = first;
      sorted_.clear();
      for (; last < layers_.size() && layers_[last].worker == layers_[first].worker; ++last) {
        sorted_.push_back(layers_[last].ratio);
      }
      const std::optional<double> median = median_of_layers();
      for (; first < last; ++first) judge(step, layers_[first], median, findings);
    }
  }

 private:
  struct Weight {
    std::size_t names_seen = 0;  // of the dictionary, in search of the weight
    std::optional<TensorId> tensor;
    bool is_vector = false;
  };
  struct Layer {
    const WorkerStep* worker;
    const StatisticsRow* row;
    double ratio;
  };
  struct State {
    std::int64_t points = 0;
    Persistence outside;
    Persistence apart;
  };

  // Whether the ratio's weight is recorded at this step, or was before, with less than two axes.
  bool is_vector(const WorkerStep& worker, TensorId ratio) {
    Weight& weight = weights_.at(worker, ratio);
    const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
    const std::string_view name = std::string_view(infos[ratio].name).substr(kPrefix.size());
    for (; !weight.tensor && weight.names_seen < infos.size(); ++weight.names_seen) {
      if (infos[weight.names_seen].name != name) continue;
      weight.tensor = static_cast<TensorId>(weight.names_seen);
      for (const StatisticsRow& row : worker.record->rows) {
        if (row.tensor == *weight.tensor)
          weight.is_vector = layout_of(worker, row).shape.size() < 2;
      }
    }
    return weight.is_vector;
  }

  std::optional<double> median_of_layers() {
    if (sorted_.size() < 3) return std::nullopt;
    std::sort(sorted_.begin(), sorted_.end());
    const std::size_t half = sorted_.size() / 2;
    return sorted_.size() % 2 == 1 ? sorted_[half] : (sorted_[half - 1] + sorted_[half]) / 2.0;
  }

  void judge(const StepView& step, const Layer& layer, std::optional<double> median,
             std::vector<Finding>* findings) {
    State& state = states_.at(*layer.worker, layer.row->tensor, step.mode);
    if (state.points++ < warmup_steps_) return;
    const ScalarPoint point{step,        *layer.worker,
                            *layer.row,  tensor_name(*layer.worker, *layer.row),
                            layer.ratio, findings};
    const bool is_outside = layer.ratio < low_ || layer.ratio > high_;
    if (state.outside.tell(is_outside, persist_, point.is_judged())) {
      const bool is_low = layer.ratio < low_;
      point.add(
          "log10", layer.ratio, is_low ? low_ : high_, Severity::kWarning,
          fmt::format("log10 of {} is {:.2f} at step {}, {} for {} points: the layer is "
                      "{}.",
                      point.name, layer.ratio, step.step,
                      is_low ? fmt::format("below {:g}", low_) : fmt::format("above {:g}", high_),
                      persist_, is_low ? "hardly moved" : "moved too far at each step"));
    }
    const bool is_apart = median && std::abs(layer.ratio - *median) > max_distance_;
    if (!state.apart.tell(is_apart, persist_, point.is_judged())) return;
    point.add("log10", layer.ratio, *median, Severity::kWarning,
              fmt::format("log10 of {} is {:.2f} at step {}, {:.2f} decades {} the median of all "
                          "layers ({:.2f}) for {} points.",
                          point.name, layer.ratio, step.step, std::abs(layer.ratio - *median),
                          layer.ratio < *median ? "below" : "above", *median, persist_));
  }

  const double low_;
  const double high_;
  const double max_distance_;
  const std::int64_t persist_;
  const std::int64_t warmup_steps_;
  TensorSelector names_;
  SkippedSteps skipped_;
  PerTensor<Weight> weights_;
  std::vector<Layer> layers_;
  std::vector<double> sorted_;
  PerSeries<State> states_;
};

}  // namespace

const RuleDescriptor& update_to_weight_ratio_per_layer_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Layers that are moved too far, hardly at all, or unlike the others.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kOptimizer,
      .advice = {"A layer that moves a hundred times faster than the others is not trained but "
                 "rewritten; one that moves a hundred times slower might as well be frozen.",
                 kCauses,
                 "Compare learning rate, initialisation and dtype of the named layer with its "
                 "neighbours'."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<UpdateToWeightRatioPerLayer>,
  };
  return kDescriptor;
}

}  // namespace tensortap
