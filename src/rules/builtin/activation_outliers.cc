// ActivationOutliers: channels of a transformer whose activations stick out.
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

constexpr std::string_view kName = "ActivationOutliers";

constexpr std::string_view kDoc =
    R"(Looks at outputs of blocks of transformers (`tensor_regex`, or the collection
`block_output`); channels are the indices of the last axis. An info says so once when a layer first
has massive activations (above 100 and at least 1000 times the median magnitude of the tensor), and
once when there first are outlier features: channels whose magnitude is 6 or more in at least 6% of
the positions (all other axes, at least 17 of them), in at least 25% of the layers. Warns when the
number of such channels has doubled within `window` points, from at least 4; and when the largest
magnitude of a float16 activation exceeds a tenth of that format's largest number.

Channels need raw values. Without them only the last is judged, and the status is NoData when it
found nothing.

Source: LLM.int8, arXiv 2208.07339; massive activations, 2402.17762, which do not always harm
(2503.22329). The limits of both warnings are ours.)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"tensor_regex", ParameterType::kString, "(blocks?|layers?|h)\\.\\d+_output_0$",
     "Pattern of names of blocks' outputs."},
    {"window", ParameterType::kInt, "1000", "Points within which a doubling warns.", 1},
    {"max_format_share", ParameterType::kFloat, "0.1",
     "Share of the format's largest number that warns.", 0.0, 1.0},
}};

constexpr std::array<std::string_view, 3> kCauses = {
    "attention that needs somewhere to put its weight (sinks on the first tokens)",
    "a learning rate or an optimizer that lets single channels grow",
    "no normalisation that bounds the residual stream",
};

constexpr double kMassive = 100.0;
constexpr double kMassiveRatio = 1000.0;
constexpr double kOutlier = 6.0;
constexpr double kMinPositionShare = 0.06;
constexpr double kMinLayerShare = 0.25;
constexpr std::size_t kMinPositions = 17;  // with fewer, a single one is 6%
constexpr double kMinDoubled = 4.0;

// 0 for formats whose limit is out of reach, and for those whose values are scaled to fill them.
double largest_of(DType dtype) { return dtype == DType::kFloat16 ? 65504.0 : 0.0; }

double median_magnitude(const std::vector<double>& elements) {
  std::vector<double> magnitudes;
  magnitudes.reserve(elements.size());
  for (const double element : elements) {
    if (std::isfinite(element)) magnitudes.push_back(std::abs(element));
  }
  if (magnitudes.empty()) return 0.0;
  const auto middle = magnitudes.begin() + std::ssize(magnitudes) / 2;
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  return *middle;
}

struct Channels {
  std::vector<std::size_t> massive;
  std::vector<std::size_t> outliers;  // in enough positions
};

Channels channels_of(const TensorValues& values) {
  const auto width = static_cast<std::size_t>(values.shape.back());
  const std::size_t positions = values.elements.size() / width;
  const double massive = std::max(kMassive, kMassiveRatio * median_magnitude(values.elements));
  std::vector<double> highest(width, 0.0);
  std::vector<std::size_t> counts(width, 0);
  for (std::size_t i = 0; i < values.elements.size(); ++i) {
    const double magnitude = std::abs(values.elements[i]);
    if (!std::isfinite(magnitude)) continue;
    highest[i % width] = std::max(highest[i % width], magnitude);
    counts[i % width] += magnitude >= kOutlier ? 1 : 0;
  }
  Channels channels;
  for (std::size_t i = 0; i < width; ++i) {
    if (highest[i] > kMassive && highest[i] >= massive) channels.massive.push_back(i);
    const bool is_outlier = static_cast<double>(counts[i]) >= kMinPositionShare * double(positions);
    if (positions >= kMinPositions && is_outlier) channels.outliers.push_back(i);
  }
  return channels;
}

class ActivationOutliers : public TensorRule {
 public:
  explicit ActivationOutliers(const Parameters& parameters)
      : TensorRule(
            {.collections = {"block_output"}, .regexes = {parameters.get_string("tensor_regex")}}),
        max_format_share_(parameters.get_float("max_format_share")),
        counts_(static_cast<std::size_t>(parameters.get_int("window"))) {}

 protected:
  void begin(const StepView&) override {
    layers_now_ = 0;
    massive_now_ = 0;
    outliers_now_.clear();
  }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (row.statistics.finite_count() == 0) return;
    const ScalarPoint point{step,
                            worker,
                            row,
                            tensor_name(worker, row),
                            statistic_value(row.statistics, StatisticId::kAbsMax),
                            findings};
    Layer& layer = layers_.at(worker, row.tensor);
    judge_format(point, layer);
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) {
      note_missing_values();
      return;
    }
    if (values->shape.empty()) return;
    const Channels channels = channels_of(*values);
    ++layers_now_;
    massive_now_ += channels.massive.size();
    for (const std::size_t channel : channels.outliers) {
      if (outliers_now_.size() <= channel) outliers_now_.resize(channel + 1, 0);
      ++outliers_now_[channel];
    }
    if (channels.massive.empty() || layer.is_massive || !point.is_judged()) return;
    layer.is_massive = true;
    point.add("abs_max", point.value, kMassive, Severity::kInfo,
              fmt::format("{} first has massive activations at step {}: up to {:.4g}, in {} "
                          "channels, the first of them {}.",
                          point.name, step.step, point.value, channels.massive.size(),
                          channels.massive.front()));
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (layers_now_ == 0) return;
    std::vector<std::size_t> features;
    for (std::size_t i = 0; i < outliers_now_.size(); ++i) {
      const bool is_feature = double(outliers_now_[i]) >= kMinLayerShare * double(layers_now_);
      if (is_feature && outliers_now_[i] > 0) features.push_back(i);
    }
    tell_features(step, features, findings);
    judge_doubling(step, static_cast<double>(features.size() + massive_now_), findings);
  }

 private:
  struct Layer {
    bool is_massive = false;  // told
    Persistence near_limit;
  };

  void judge_format(const ScalarPoint& point, Layer& layer) const {
    const double limit = max_format_share_ * largest_of(layout_of(point.worker, point.row).dtype);
    const bool is_near = limit > 0.0 && point.value > limit;
    if (!layer.near_limit.tell(is_near, 1, point.is_judged())) return;
    point.add("abs_max", point.value, limit, Severity::kWarning,
              fmt::format("The largest magnitude of {} is {:.4g} at step {}, more than {:g} % of "
                          "float16's largest number.",
                          point.name, point.value, point.step.step, 100.0 * max_format_share_));
  }

  void tell_features(const StepView& step, const std::vector<std::size_t>& features,
                     std::vector<Finding>* findings) {
    if (features.empty() || are_features_told_ || findings == nullptr) return;
    are_features_told_ = true;
    Finding& finding = findings->emplace_back(finding_at(step, "", ""));
    finding.severity = Severity::kInfo;
    finding.statistic = "outlier_features";
    finding.observed = static_cast<double>(features.size());
    finding.message = fmt::format(
        "There first are outlier features at step {}: {} channels, the first of them {}, reach a "
        "magnitude of {:g} in at least 6 % of the positions and a quarter of {} layers.",
        step.step, features.size(), features.front(), kOutlier, layers_now_);
  }

  void judge_doubling(const StepView& step, double count, std::vector<Finding>* findings) {
    const double least = counts_.size() > 0 ? counts_.minimum() : count;
    counts_.push(count);
    const bool has_doubled = least >= kMinDoubled && count >= 2.0 * least;
    if (!doubled_.tell(has_doubled, 1, findings != nullptr)) return;
    Finding& finding = findings->emplace_back(finding_at(step, "", ""));
    finding.statistic = "outlier_channels";
    finding.observed = count;
    finding.threshold = 2.0 * least;
    finding.message = fmt::format(
        "The number of channels with outliers has grown from {:g} to {:g} within {} points up to "
        "step {}.",
        least, count, counts_.size() - 1, step.step);
  }

  const double max_format_share_;
  PerTensor<Layer> layers_;
  std::size_t layers_now_ = 0;
  std::size_t massive_now_ = 0;            // channels, over layers
  std::vector<std::size_t> outliers_now_;  // [channel]: layers in which it is one
  bool are_features_told_ = false;
  RollingWindow counts_;
  Persistence doubled_;
};

}  // namespace

const RuleDescriptor& activation_outliers_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Channels of a transformer whose activations stick out.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"Trained language models have such channels; they make low-precision formats and "
                 "quantisation fail, and a fast growth of their number announces instability.",
                 kCauses,
                 "Keep those channels in a higher precision when quantising; when their number "
                 "grows fast, look at weight decay and the learning rate."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<ActivationOutliers>,
  };
  return kDescriptor;
}

}  // namespace tensortap
