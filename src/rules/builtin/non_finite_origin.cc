// NonFiniteOrigin: where the first NaN or infinity of a training comes from.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/tensor_role.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "NonFiniteOrigin";

constexpr std::string_view kDoc =
    R"(At the first step with a NaN or an infinity it names the tensor in which it arose, and what
that tells. Tensors are asked in the order in which a step computes them:

- *input*: the batch (collection `model_inputs`) was not finite, whatever came after;
- *parameter*: a weight was not finite when the step began; hooks record weights before the
  forward pass;
- *operator*: inputs and weights were finite, and this is the first module output that is not;
- *loss*: everything before the loss was finite;
- *gradient*: only the backward pass was not; of several gradients the one nearest to the loss;
- *optimizer state*.

It is told once, until a step has been finite again. With a loss scaler (a recorded `loss_scale`)
gradients that overflow while everything else is finite are expected and left to
LossScaleCollapse. Elements of -Inf alone, in inputs and outputs, are taken for a mask unless the
loss or a gradient of that step is not finite and the tensor was not so before.

A warning comes earlier: a module output or gradient in a 16- or 8-bit format whose largest
magnitude exceeds `near_overflow` of what the format holds; the maximum itself is a mask's and
does not count.

It sees as far as tensors are recorded: with only losses and weights saved, it names one of these.

Source: Hugging Face's DebugUnderflowOverflow prints the last frames before the first bad one; the
limit for near overflow and the treatment of masks are ours.)";

constexpr std::array<ParameterDescriptor, 1> kParameters = {{
    {"near_overflow", ParameterType::kFloat, "0.9",
     "Share of a small format's maximum above which a tensor is near overflow.", 0.0, 1.0},
}};

constexpr std::array<std::string_view, 3> kCollections = {"model_inputs", "gradients", "weights"};

constexpr std::array<std::string_view, 5> kCauses = {
    "float16 overflow in a layer whose activations are large",
    "a logarithm or square root at zero, or a division by a standard deviation of zero",
    "NaN or infinite values in the data",
    "weights that were driven away by a learning rate that is too high",
    "an exponential of a large number, as in a hand-written softmax",
};

// Of the formats that a training can reach the end of.
std::optional<double> small_format_maximum(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504.0;
    case DType::kFloat8E4M3FN:
      return 448.0;
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
      return 57344.0;
    case DType::kFloat8E4M3FNUZ:
      return 240.0;
    default:
      return std::nullopt;
  }
}

class NonFiniteOrigin : public TensorRule {
 public:
  explicit NonFiniteOrigin(const Parameters& parameters)
      : TensorRule({}), near_overflow_(parameters.get_float("near_overflow")) {}

 protected:
  void begin(const StepView&) override { suspects_.clear(); }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (suspects_.empty() || suspects_.back().worker != &worker) {
      suspects_.emplace_back();
      suspects_.back().worker = &worker;
    }
    Tensor& tensor = tensors_.at(worker, row.tensor);
    if (!tensor.is_known) {
      tensor.is_known = true;
      tensor.role = tensor_role(worker.dictionary->tensors[row.tensor]);
    }
    if (tensor.role == TensorRole::kOther) return;
    const Statistics& s = row.statistics;
    if (s.nan_count + s.positive_inf_count + s.negative_inf_count == 0) {
      watch_overflow(step, worker, row, tensor, findings);
      return;
    }
    note(suspects_.back(), tensor, row);
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (Suspects& suspects : suspects_) {
      const StatisticsRow* origin = origin_of(suspects);
      Persistence& episode = episode_of(*suspects.worker);
      if (!episode.tell(origin != nullptr, 1, findings != nullptr)) continue;
      findings->push_back(describe(step, *suspects.worker, *origin));
    }
  }

 private:
  static constexpr std::size_t kRoles = static_cast<std::size_t>(TensorRole::kOther);

  struct Tensor {
    bool is_known = false;
    bool is_mask = false;  // held -Inf and nothing worse at an earlier step
    TensorRole role = TensorRole::kOther;
    Persistence near_overflow;
  };
  // What is not finite at one worker's step: the first of each role, of gradients the last, since
  // they are computed from the loss backwards.
  struct Suspects {
    const WorkerStep* worker = nullptr;
    std::array<const StatisticsRow*, kRoles> worst{};
    // The first input or output with only -Inf that was no mask before.
    const StatisticsRow* maybe_mask = nullptr;
  };

  void note(Suspects& suspects, Tensor& tensor, const StatisticsRow& row) {
    const Statistics& s = row.statistics;
    const bool is_activation =
        tensor.role == TensorRole::kBatch || tensor.role == TensorRole::kForward;
    if (is_activation && s.nan_count == 0 && s.positive_inf_count == 0) {
      if (suspects.maybe_mask == nullptr && !tensor.is_mask) {
        suspects.maybe_mask = &row;
      }
      tensor.is_mask = true;
      return;
    }
    const StatisticsRow*& worst = suspects.worst[static_cast<std::size_t>(tensor.role)];
    if (worst == nullptr || tensor.role == TensorRole::kGradient) worst = &row;
  }

  const StatisticsRow* origin_of(const Suspects& suspects) {
    const auto of = [&](TensorRole role) { return suspects.worst[static_cast<std::size_t>(role)]; };
    if (of(TensorRole::kBatch) != nullptr) return of(TensorRole::kBatch);
    if (of(TensorRole::kParameter) != nullptr) return of(TensorRole::kParameter);
    const StatisticsRow* forward = of(TensorRole::kForward);
    const StatisticsRow* loss = of(TensorRole::kLoss);
    const StatisticsRow* gradient = of(TensorRole::kGradient);
    const bool is_mask_innocent = forward == nullptr && loss == nullptr && gradient == nullptr;
    const StatisticsRow* mask = is_mask_innocent ? nullptr : suspects.maybe_mask;
    if (mask != nullptr && (forward == nullptr || mask->tensor < forward->tensor)) return mask;
    if (forward != nullptr) return forward;
    if (loss != nullptr) return loss;
    if (gradient != nullptr) return scale_.is_known(*suspects.worker) ? nullptr : gradient;
    return of(TensorRole::kOptimizerState);
  }

  static std::string_view kind_of(TensorRole role) {
    switch (role) {
      case TensorRole::kBatch:
        return "the input was already bad";
      case TensorRole::kParameter:
        return "a parameter was bad before the forward pass";
      case TensorRole::kForward:
        return "inputs and weights were finite, the operator's output is not";
      case TensorRole::kLoss:
        return "all that was recorded before the loss was finite";
      case TensorRole::kGradient:
        return "only the backward pass is not finite";
      default:
        return "only the optimizer's state is not finite";
    }
  }

  Finding describe(const StepView& step, const WorkerStep& worker, const StatisticsRow& row) {
    const Statistics& s = row.statistics;
    const std::uint64_t infinite = s.positive_inf_count + s.negative_inf_count;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.severity = Severity::kCritical;
    finding.statistic = s.nan_count != 0 ? "nan_count" : "inf_count";
    finding.observed = static_cast<double>(s.nan_count != 0 ? s.nan_count : infinite);
    finding.message = fmt::format(
        "The first tensor that is not finite at step {} is {}, with {} NaN and {} infinities "
        "among {} elements: {}.",
        step.step, finding.tensor, s.nan_count, infinite, s.count,
        kind_of(tensors_.at(worker, row.tensor).role));
    return finding;
  }

  void watch_overflow(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                      Tensor& tensor, std::vector<Finding>* findings) const {
    if (tensor.role != TensorRole::kForward && tensor.role != TensorRole::kGradient) return;
    const DType dtype = layout_of(worker, row).dtype;
    const std::optional<double> maximum = small_format_maximum(dtype);
    if (!maximum) return;
    const double largest = statistic_value(row.statistics, StatisticId::kAbsMax);
    const double limit = near_overflow_ * *maximum;
    const bool is_near = largest > limit && largest != *maximum;
    if (!tensor.near_overflow.tell(is_near, 1, findings != nullptr)) return;
    Finding& finding =
        findings->emplace_back(finding_at(step, tensor_name(worker, row), worker.worker));
    finding.statistic = "abs_max";
    finding.observed = largest;
    finding.threshold = limit;
    finding.message = fmt::format("{} reaches {:.5g} at step {}; {} ends at {:g}.", finding.tensor,
                                  largest, step.step, dtype_name(dtype), *maximum);
  }

  Persistence& episode_of(const WorkerStep& worker) {
    if (episodes_.size() <= worker.worker_index) episodes_.resize(worker.worker_index + 1);
    return episodes_[worker.worker_index];
  }

  const double near_overflow_;
  NamedScalar scale_{"^(scalar/)?(loss_scale|skipped_step)$"};
  PerTensor<Tensor> tensors_;
  std::vector<Suspects> suspects_;
  std::vector<Persistence> episodes_;  // [worker_index]
};

}  // namespace

const RuleDescriptor& non_finite_origin_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The tensor in which the first NaN or infinity arose.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kNonFinite,
      .advice = {"Once one tensor is not finite, all that is computed from it is lost; only its "
                 "origin tells what to repair.",
                 kCauses,
                 "Look at the named tensor and at what goes into it; record the outputs of all "
                 "modules of that part, and go back to a checkpoint from before the step."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<NonFiniteOrigin>,
  };
  return kDescriptor;
}

}  // namespace tensortap
