// CheckInputImages: images that are not normalised to zero mean.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/shared_parameters.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "CheckInputImages";
constexpr std::string_view kRegex = ".*hybridsequential0_input_0";
constexpr std::string_view kImages = "input_image";
constexpr std::string_view kInputs = "model_inputs";
constexpr std::size_t kImageRank = 4;  // samples, channels, height, width

constexpr std::string_view kDoc =
    R"(Sums up the pixels of all images seen so far (axis 0 is the images). Once there are
`threshold_samples` of them, fires when the mean of some channel lies further than `threshold_mean`
from zero, once, and again only after it has been within. With `threshold_std`, also when a channel's
standard deviation lies further than that from 1. NaN and infinite pixels are left out.

With raw values each channel has its mean. Without them all channels count as one: what fires then,
fires for the channels too, but channels of opposite means go unseen.

Looks at the collections `input_image` and `model_inputs`, of the latter only at tensors with four
axes, and at names that `regex` matches, at training steps: steps of mode TRAIN, or GLOBAL where the
script sets no mode. Each tensor and worker counts for itself.

Source: SageMaker Debugger's rule of that name; `threshold_std` is an addition.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"threshold_mean", ParameterType::kFloat, "0.2",
     "How far from zero the mean of a channel may lie.", 0.0, 1e308, true},
    {"threshold_samples", ParameterType::kInt, "500", "Images that must have been seen.", 1},
    {"regex", ParameterType::kList, kRegex,
     "Patterns of names of inputs, separated by commas; another than the default replaces the "
     "collections."},
    {"channel", ParameterType::kInt, "1", "The axis of the channels: 1, or 3 when they are last.",
     0},
    {"threshold_std", ParameterType::kFloat, "",
     "How far from 1 the standard deviation of a channel may lie; unset = anywhere.", 0.0},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 2> kCollections = {kImages, kInputs};

constexpr std::array<std::string_view, 3> kCauses = {
    "the normalisation is missing from the data pipeline",
    "mean and standard deviation of another data set",
    "pixels of 0 to 255 where 0 to 1 was expected",
};

struct Channel {
  double sum = 0.0;
  double square_sum = 0.0;
  double count = 0.0;
  double mean() const { return sum / count; }
  double deviation() const {
    return std::sqrt(std::max(0.0, square_sum / count - mean() * mean()));
  }
};

struct Images {
  std::int64_t count = 0;
  std::int64_t known_count = 0;  // of which the channels are known
  std::vector<Channel> channels;
  Channel all;
  bool is_told = false;
};

class CheckInputImages : public TensorRule {
 public:
  explicit CheckInputImages(const Parameters& parameters)
      : TensorRule(scope_of(parameters)),
        threshold_mean_(parameters.get_float("threshold_mean")),
        threshold_samples_(parameters.get_int("threshold_samples")),
        channel_axis_(static_cast<std::size_t>(parameters.get_int("channel"))),
        has_threshold_std_(parameters.is_set("threshold_std")),
        threshold_std_(parameters.get_float("threshold_std")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::vector<std::int64_t>& shape = layout_of(worker, row).shape;
    if (row.statistics.count == 0 || !is_image(worker, row, shape)) return;
    Images& images = images_.at(worker, row.tensor);
    images.count += shape.empty() ? 1 : shape[0];
    add_statistics(images.all, row.statistics);
    if (const std::optional<TensorValues> values = values_of(worker, row)) {
      images.known_count += shape.empty() ? 1 : shape[0];
      add_values(images.channels, *values);
    }
    if (findings == nullptr || images.count < threshold_samples_) return;
    judge(step, worker, row, images, *findings);
  }

 private:
  static RuleScope scope_of(const Parameters& parameters) {
    RuleScope scope{.regexes = parameters.get_list("regex"),
                    .policy = worker_policy_of(kName, parameters)};
    if (parameters.get_string("regex") == kRegex) {
      scope.collections = {std::string(kImages), std::string(kInputs)};
    }
    return scope;
  }

  // What is there only as some input of a model may be anything.
  static bool is_image(const WorkerStep& worker, const StatisticsRow& row,
                       const std::vector<std::int64_t>& shape) {
    const std::vector<std::string>& names = worker.dictionary->tensors[row.tensor].collections;
    const auto is_in = [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    return shape.size() == kImageRank || is_in(kImages) || !is_in(kInputs);
  }

  static void add_statistics(Channel& all, const Statistics& s) {
    const auto count = static_cast<double>(s.finite_count());
    if (count == 0.0) return;
    all.sum += count * s.mean;
    all.square_sum += count * (s.variance + s.mean * s.mean);
    all.count += count;
  }

  void add_values(std::vector<Channel>& channels, const TensorValues& values) const {
    std::size_t stride = 1;
    std::size_t count = 1;
    if (channel_axis_ < values.shape.size() && channel_axis_ > 0) {
      count = static_cast<std::size_t>(values.shape[channel_axis_]);
      for (std::size_t axis = channel_axis_ + 1; axis < values.shape.size(); ++axis) {
        stride *= static_cast<std::size_t>(values.shape[axis]);
      }
    }
    if (channels.size() < count) channels.resize(count);
    for (std::size_t i = 0; i < values.elements.size(); ++i) {
      const double pixel = values.elements[i];
      if (!std::isfinite(pixel)) continue;
      Channel& channel = channels[i / stride % count];
      channel.sum += pixel;
      channel.square_sum += pixel * pixel;
      channel.count += 1.0;
    }
  }

  struct Fault {
    std::string_view statistic;
    double observed = 0.0;
    double threshold = 0.0;
    std::size_t channel = 0;
  };

  std::optional<Fault> worst_of(const std::vector<Channel>& channels) const {
    std::optional<Fault> worst;
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (channels[c].count == 0.0) continue;
      const double mean = channels[c].mean();
      if (std::abs(mean) <= threshold_mean_) continue;
      if (!worst || std::abs(mean) > std::abs(worst->observed)) {
        worst = Fault{"mean", mean, threshold_mean_, c};
      }
    }
    if (worst || !has_threshold_std_) return worst;
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (channels[c].count == 0.0) continue;
      const double deviation = channels[c].deviation();
      if (std::abs(deviation - 1.0) > threshold_std_) {
        return Fault{"std", deviation, threshold_std_, c};
      }
    }
    return std::nullopt;
  }

  void judge(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
             Images& images, std::vector<Finding>& findings) const {
    const bool knows_channels = images.known_count == images.count;
    const std::optional<Fault> fault =
        knows_channels ? worst_of(images.channels) : worst_of({images.all});
    if (!fault) images.is_told = false;
    if (!fault || std::exchange(images.is_told, true)) return;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.statistic = fault->statistic;
    finding.observed = fault->observed;
    finding.threshold = fault->threshold;
    const std::string where = knows_channels && images.channels.size() > 1
                                  ? fmt::format(" in channel {}", fault->channel)
                                  : "";
    finding.message = fmt::format(
        "The {} of {} over {} images is {:.3g}{} at step {}, further than {:g} from {}: the images "
        "are not normalised.",
        fault->statistic == "mean" ? "mean" : "standard deviation", finding.tensor, images.count,
        fault->observed, where, finding.step, fault->threshold, fault->statistic == "mean" ? 0 : 1);
    findings.push_back(std::move(finding));
  }

  const double threshold_mean_;
  const std::int64_t threshold_samples_;
  const std::size_t channel_axis_;
  const bool has_threshold_std_;
  const double threshold_std_;
  PerTensor<Images> images_;
};

}  // namespace

const RuleDescriptor& check_input_images_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Images that are not normalised to zero mean.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kData,
      .advice = {"Inputs far from zero slow the training down and saturate the first layers.",
                 kCauses,
                 "Subtract the mean of each channel of the training set and divide by its standard "
                 "deviation."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<CheckInputImages>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
