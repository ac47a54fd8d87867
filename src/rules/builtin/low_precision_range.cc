// LowPrecisionRange: numbers that a small format cannot hold.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/shared_parameters.h"
#include "rules/tensor_role.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LowPrecisionRange";

constexpr std::string_view kDoc =
    R"(Measures what a cast to a small format loses. Fires

- for an activation of which finite elements exceed the format's maximum: any in float16, more
  than a ten-thousandth in float8 (critical);
- for a gradient of which more than 10 % of the elements that are not zero are flushed to zero, at
  3 points in a row (warning), or more than 50 % (critical). With a loss scaler the gradient times
  the recorded `loss_scale` is meant;
- for a gradient more than half of whose elements lie below the format's smallest normal number,
  at 3 points in a row (warning): a gradient that was computed in that format has lost the smaller
  ones already, as zeros;
- for a weight in bfloat16 or float16, of which more than half of the elements that have a
  gradient do not change by the update, at 10 points in a row (warning). Needs raw values of
  weights and gradients.

`format` auto judges float16 in runs that record a loss scale and for tensors that are float16
themselves; elsewhere small numbers do no harm. With float8 the scale of the cast is taken as 1.
Shares of formats other than float16, or under a loss scale, come from histograms, and without
them from the least and largest magnitude where these settle it. Training steps only.

Source: mixed-precision training, arXiv 1710.03740; NVIDIA Transformer Engine's debug features.
The limits are ours.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"format", ParameterType::kString, "auto", "auto, float16, float8_e4m3fn or float8_e5m2."},
    {"warn_share", ParameterType::kFloat, "0.1", "Share of flushed gradients that warns.", 0.0,
     1.0},
    {"critical_share", ParameterType::kFloat, "0.5",
     "Share of flushed gradients that is critical, and of subnormal ones that warns.", 0.0, 1.0},
    {"persist", ParameterType::kInt, "3", "Points in a row of a gradient that warn.", 1},
}};

constexpr std::array<std::string_view, 2> kCollections = {"gradients", "weights"};

constexpr std::array<std::string_view, 4> kCauses = {
    "float16 without a loss scaler, or with a scale that is too small",
    "activations that grow beyond 65504",
    "weights kept in bfloat16 with a learning rate whose updates they cannot hold",
    "float8 scales that are stale",
};

struct Format {
  std::string_view name;
  double maximum;
  double smallest_normal;
  double flushed;  // magnitudes up to this become zero
  double tolerated_over;
};
constexpr std::array<Format, 3> kFormats = {{
    {"float16", 65504.0, 0x1p-14, 0x1p-25, 0.0},
    {"float8_e4m3fn", 448.0, 0x1p-6, 0x1p-10, 1e-4},
    {"float8_e5m2", 57344.0, 0x1p-14, 0x1p-17, 1e-4},
}};
constexpr std::array<std::string_view, 4> kChoices = {"auto", "float16", "float8_e4m3fn",
                                                      "float8_e5m2"};
constexpr std::int64_t kSwallowedPersist = 10;

// Share, among the elements that are not zero, of magnitudes up to a limit. Buckets that the limit
// cuts count by their share of it.
std::optional<double> share_below(const StatisticsRow& row, double limit) {
  const Statistics& s = row.statistics;
  const double nonzero = static_cast<double>(s.finite_count() - s.zero_count);
  if (nonzero <= 0.0) return 0.0;
  const double largest = statistic_value(s, StatisticId::kAbsMax);
  if (largest <= limit) return 1.0;
  if (s.abs_min > limit) return 0.0;
  if (!row.has_histogram) return std::nullopt;
  double below = 0.0;
  for (int bucket = 0; bucket < Histogram::kBucketCount; ++bucket) {
    const auto count = static_cast<double>(row.histogram.counts[static_cast<std::size_t>(bucket)]);
    if (count == 0.0) continue;
    const double a = std::abs(row.histogram.lower(bucket));
    const double b = std::abs(row.histogram.upper(bucket));
    const double low = std::min(a, b);
    const double high = std::max(a, b);
    if (high <= limit) {
      below += count;
    } else if (low < limit) {
      below += count * (limit - low) / (high - low);
    }
  }
  return below / nonzero;
}

class LowPrecisionRange : public TensorRule {
 public:
  explicit LowPrecisionRange(const Parameters& parameters)
      : TensorRule({}),
        choice_(choice_of(kName, parameters, "format", kChoices)),
        warn_share_(parameters.get_float("warn_share")),
        critical_share_(parameters.get_float("critical_share")),
        persist_(parameters.get_int("persist")) {}

 protected:
  void begin(const StepView&) override { asked_ = nullptr; }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    Tensor& tensor = tensors_.at(worker, row.tensor, step.mode);
    if (!tensor.is_known) {
      tensor.is_known = true;
      tensor.role = tensor_role(worker.dictionary->tensors[row.tensor]);
    }
    if (tensor.role == TensorRole::kParameter) {
      watch_updates(step, worker, row, tensor, findings);
      return;
    }
    const bool is_gradient = tensor.role == TensorRole::kGradient;
    if (!is_gradient && tensor.role != TensorRole::kForward) return;
    const DType dtype = layout_of(worker, row).dtype;
    if (!dtype_is_floating(dtype) || row.statistics.finite_count() == 0) return;
    if (asked_ != &worker) {
      asked_ = &worker;
      scale_now_ = scale_.value(worker);
      has_scale_ = scale_.is_known(worker);
    }
    if (choice_ == 0 && !has_scale_ && dtype != DType::kFloat16) return;
    const Format& format = kFormats[choice_ == 0 ? 0 : choice_ - 1];
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), 0.0, findings};
    is_gradient ? judge_gradient(point, format, tensor) : judge_activation(point, format, tensor);
  }

 private:
  struct Tensor {
    bool is_known = false;
    TensorRole role = TensorRole::kOther;
    Persistence over;
    Persistence under;
    Persistence far_under;
    Persistence subnormal;
    // Of a weight in a small format: its last elements, and which of them had a gradient.
    std::vector<double> elements;
    std::vector<bool> had_gradient;
    Persistence swallowed;
  };

  void judge_activation(const ScalarPoint& point, const Format& format, Tensor& tensor) const {
    const double largest = statistic_value(point.row.statistics, StatisticId::kAbsMax);
    if (!(largest > format.maximum)) {
      tensor.over.tell(false, 1, point.is_judged());
      return;
    }
    const double below = share_below(point.row, format.maximum).value_or(0.0);
    const bool is_over = 1.0 - below > format.tolerated_over;
    if (!tensor.over.tell(is_over, 1, point.is_judged())) return;
    point.add("abs_max", largest, format.maximum, Severity::kCritical,
              fmt::format("{} reaches {:.5g} at step {}; a cast to {} ends at {:g}.", point.name,
                          largest, point.step.step, format.name, format.maximum));
  }

  void judge_gradient(const ScalarPoint& point, const Format& format, Tensor& tensor) const {
    const double scale = scale_now_.value_or(1.0) > 0.0 ? scale_now_.value_or(1.0) : 1.0;
    const Statistics& s = point.row.statistics;
    const double nonzero = static_cast<double>(s.finite_count() - s.zero_count);
    const bool is_counted = scale == 1.0 && format.name == "float16";
    const std::optional<double> under =
        is_counted ? (nonzero > 0.0 ? static_cast<double>(s.underflow_count) / nonzero : 0.0)
                   : share_below(point.row, format.flushed / scale);
    if (under) {
      const auto tell = [&](double limit, Severity severity) {
        point.add("underflow_share", *under, limit, severity,
                  fmt::format("{:.1f} % of the elements of {} that are not zero are flushed to "
                              "zero by {} at step {}{}.",
                              100.0 * *under, point.name, format.name, point.step.step,
                              scale == 1.0 ? "" : fmt::format(", at a loss scale of {:g}", scale)));
      };
      const bool alarms = tensor.far_under.tell(*under > critical_share_, 1, point.is_judged());
      const bool warns = tensor.under.tell(*under > warn_share_, persist_, point.is_judged());
      if (alarms) {
        tell(critical_share_, Severity::kCritical);
      } else if (warns && !(*under > critical_share_)) {
        tell(warn_share_, Severity::kWarning);
      }
    }
    const std::optional<double> small =
        share_below(point.row, format.smallest_normal * (1.0 - 1e-9) / scale);
    const bool is_small = small && *small > critical_share_ && under.value_or(0.0) <= warn_share_;
    if (!tensor.subnormal.tell(is_small, persist_, point.is_judged())) return;
    point.add("subnormal_share", *small, critical_share_, Severity::kWarning,
              fmt::format("{:.1f} % of the elements of {} that are not zero lie below the smallest "
                          "normal number of {} at step {}: smaller ones are lost.",
                          100.0 * *small, point.name, format.name, point.step.step));
  }

  void watch_updates(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                     Tensor& tensor, std::vector<Finding>* findings) {
    const DType dtype = layout_of(worker, row).dtype;
    if (dtype != DType::kBFloat16 && dtype != DType::kFloat16) return;
    if (worker.record->raws.empty() && worker.trial == nullptr) return;
    std::optional<TensorValues> weight = values_of(worker, row);
    if (!weight) return;
    std::size_t updated = 0;
    std::size_t swallowed = 0;
    if (tensor.elements.size() == weight->elements.size() &&
        tensor.had_gradient.size() == weight->elements.size()) {
      for (std::size_t i = 0; i < weight->elements.size(); ++i) {
        if (!tensor.had_gradient[i]) continue;
        ++updated;
        swallowed += tensor.elements[i] == weight->elements[i] ? 1 : 0;
      }
    }
    tensor.elements = std::move(weight->elements);
    note_gradient(worker, row, tensor);
    if (updated == 0) return;
    const double share = static_cast<double>(swallowed) / static_cast<double>(updated);
    if (!tensor.swallowed.tell(share > 0.5, kSwallowedPersist, findings != nullptr)) return;
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), share, findings};
    point.add(
        "swallowed_share", share, 0.5, Severity::kWarning,
        fmt::format("{:.0f} % of the elements of {} with a gradient did not change at {} "
                    "points up to step {}: {} is too coarse for these updates.",
                    100.0 * share, point.name, kSwallowedPersist, step.step, dtype_name(dtype)));
  }

  static void note_gradient(const WorkerStep& worker, const StatisticsRow& row, Tensor& tensor) {
    tensor.had_gradient.clear();
    const std::string wanted = "gradient/" + tensor_name(worker, row);
    for (const StatisticsRow& other : worker.record->rows) {
      if (tensor_name(worker, other) != wanted) continue;
      const std::optional<TensorValues> gradient = values_of(worker, other);
      if (!gradient) return;
      for (const double element : gradient->elements) tensor.had_gradient.push_back(element != 0.0);
      return;
    }
  }

  const std::size_t choice_;
  const double warn_share_;
  const double critical_share_;
  const std::int64_t persist_;
  NamedScalar scale_{"^(scalar/)?loss_scale$"};
  const WorkerStep* asked_ = nullptr;  // the worker that the next two are of
  std::optional<double> scale_now_;
  bool has_scale_ = false;
  PerSeries<Tensor> tensors_;
};

}  // namespace

const RuleDescriptor& low_precision_range_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Numbers that float16, bfloat16 or float8 cannot hold.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kPrecision,
      .advice = {"What is flushed to zero is not learnt, what overflows spoils the step, and no "
                 "error is raised for either.",
                 kCauses,
                 "Scale the loss, or train in bfloat16 with float32 weights; keep norms and heads "
                 "in float32."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LowPrecisionRange>,
  };
  return kDescriptor;
}

}  // namespace tensortap
