// TimestepLossImbalance: noise levels of a diffusion training that one bin dominates, or misses.
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

constexpr std::string_view kName = "TimestepLossImbalance";
constexpr std::size_t kBins = 10;

constexpr std::string_view kDoc =
    R"(Divides the noise levels from 0 to `max_timestep` into 10 bins and follows the loss of each:
the mean over a step's samples in the bin, averaged with a factor of 0.99. Warns when one bin
carries more than `max_share` of the sum over bins; when a bin has had no sample for `empty_steps`
points; and when a bin rises above twice its minimum while the sum over bins has fallen since then.
Apart from the second, nothing is judged before each bin has had 20 points. When the loss of the
bin with the least noise exceeds 10 times the median bin's, an info suspects that the model
predicts another target (noise, velocity, sample) than the loss compares it with; unweighted losses
of a noise prediction may look like that too. Each is told once until it is over.

The script saves two tensors with raw values, one element for each sample: `sample_losses`
(`loss_regex`), weighted as they enter the loss, and `timesteps` (`timestep_regex`), which grow
with the noise.

Source: Min-SNR, arXiv 2303.09556, on losses of noise levels that are in each other's way. The
limits are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"loss_regex", ParameterType::kString, "(^|/)(per_)?(sample|timestep)_loss(es)?$",
     "Pattern of the name of the samples' losses."},
    {"timestep_regex", ParameterType::kString, "(^|/)(timesteps?|sigmas?|noise_levels?)$",
     "Pattern of the name of the samples' noise levels."},
    {"max_timestep", ParameterType::kFloat, "1000", "The highest noise level.", 0.0},
    {"max_share", ParameterType::kFloat, "0.6", "Share of one bin that warns.", 0.0, 1.0},
    {"empty_steps", ParameterType::kInt, "1000", "Points without a sample that warn.", 1},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a sampler of noise levels that leaves some out, or hits some too often",
    "weights of the loss that do not fit the noise schedule",
    "a noise schedule that is shifted against the model's",
    "a model that predicts another target than the loss compares it with",
};

constexpr double kFactor = 0.99;
constexpr std::uint64_t kMinPoints = 20;
constexpr double kMaxRise = 2.0;
constexpr double kMaxMismatch = 10.0;

class TimestepLossImbalance : public TensorRule {
 public:
  explicit TimestepLossImbalance(const Parameters& parameters)
      : TensorRule({.regexes = {parameters.get_string("loss_regex")}}),
        max_timestep_(parameters.get_float("max_timestep")),
        max_share_(parameters.get_float("max_share")),
        empty_steps_(parameters.get_int("empty_steps")),
        timesteps_(parameters.get_string("timestep_regex")) {}

  std::string missing_input() const override {
    return has_timesteps_ ? ""
                          : "it needs the samples' timesteps too, with raw values and as many as "
                            "losses, see its timestep_regex";
  }

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const StatisticsRow* levels_row = timesteps_.row(worker);
    if (levels_row == nullptr) return;
    const std::optional<TensorValues> losses = values_of(worker, row);
    const std::optional<TensorValues> levels = values_of(worker, *levels_row);
    if (!losses || !levels) {
      note_missing_values();
      return;
    }
    if (losses->elements.size() != levels->elements.size()) return;
    has_timesteps_ = true;
    State& state = states_.at(worker, row.tensor, step.mode);
    add(losses->elements, levels->elements, state);
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), 0.0, findings};
    for (std::size_t i = 0; i < kBins; ++i) judge_empty(point, i, state.bins[i]);
    judge(point, state);
  }

 private:
  struct Bin {
    MovingAverage loss{kFactor};
    std::int64_t points_without = 0;
    double minimum = HUGE_VAL;
    double total_then = 0.0;  // the sum over bins when the minimum was reached
    Persistence empty;
    Persistence dominant;
    Persistence risen;
  };
  struct State {
    std::array<Bin, kBins> bins;
    Persistence mismatch;
  };

  void add(const std::vector<double>& losses, const std::vector<double>& levels,
           State& state) const {
    std::array<double, kBins> sums{};
    std::array<std::size_t, kBins> counts{};
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double place = levels[i] / max_timestep_ * static_cast<double>(kBins);
      if (!std::isfinite(losses[i]) || !std::isfinite(place)) continue;
      const auto bin = static_cast<std::size_t>(std::clamp(place, 0.0, kBins - 1.0));
      sums[bin] += losses[i];
      ++counts[bin];
    }
    for (std::size_t i = 0; i < kBins; ++i) {
      Bin& bin = state.bins[i];
      bin.points_without = counts[i] > 0 ? 0 : bin.points_without + 1;
      if (counts[i] > 0) bin.loss.push(sums[i] / static_cast<double>(counts[i]));
    }
  }

  std::string range(std::size_t bin) const {
    const double width = max_timestep_ / static_cast<double>(kBins);
    const auto low = static_cast<double>(bin);
    return fmt::format("{:g} to {:g}", width * low, width * (low + 1.0));
  }

  void judge_empty(const ScalarPoint& point, std::size_t index, Bin& bin) const {
    if (!bin.empty.tell(bin.points_without >= empty_steps_, 1, point.is_judged())) return;
    point.add("points_without", static_cast<double>(bin.points_without),
              static_cast<double>(empty_steps_), Severity::kWarning,
              fmt::format("No sample had a noise level of {} for {} points up to step {}.",
                          range(index), bin.points_without, point.step.step));
  }

  void judge(const ScalarPoint& point, State& state) const {
    double total = 0.0;
    for (const Bin& bin : state.bins) {
      if (bin.loss.count() < kMinPoints) return;
      total += bin.loss.value();
    }
    if (!(total > 0.0)) return;
    for (std::size_t i = 0; i < kBins; ++i) {
      judge_share(point, i, total, state.bins[i]);
      judge_rise(point, i, total, state.bins[i]);
    }
    judge_mismatch(point, state);
  }

  void judge_share(const ScalarPoint& point, std::size_t index, double total, Bin& bin) const {
    const double share = bin.loss.value() / total;
    if (!bin.dominant.tell(share > max_share_, 1, point.is_judged())) return;
    point.add("share", share, max_share_, Severity::kWarning,
              fmt::format("Noise levels of {} carry {:.3g} % of the loss at step {}.", range(index),
                          100.0 * share, point.step.step));
  }

  void judge_rise(const ScalarPoint& point, std::size_t index, double total, Bin& bin) const {
    const double loss = bin.loss.value();
    if (loss < bin.minimum) {
      bin.minimum = loss;
      bin.total_then = total;
    }
    const bool has_risen = loss > kMaxRise * bin.minimum && total < bin.total_then;
    if (!bin.risen.tell(has_risen, 1, point.is_judged())) return;
    point.add("loss", loss, kMaxRise * bin.minimum, Severity::kWarning,
              fmt::format("The loss of noise levels of {} has risen to {:.4g} at step {}, from its "
                          "minimum of {:.4g}, while that of all levels fell.",
                          range(index), loss, point.step.step, bin.minimum));
  }

  static void judge_mismatch(const ScalarPoint& point, State& state) {
    std::array<double, kBins> losses{};
    for (std::size_t i = 0; i < kBins; ++i) losses[i] = state.bins[i].loss.value();
    const double lowest_noise = losses[0];
    std::sort(losses.begin(), losses.end());
    const double median = 0.5 * (losses[kBins / 2 - 1] + losses[kBins / 2]);
    const double limit = kMaxMismatch * median;
    if (!state.mismatch.tell(lowest_noise > limit, 1, point.is_judged())) return;
    point.add("loss", lowest_noise, limit, Severity::kInfo,
              fmt::format("The loss at the least noise is {:.4g} at step {}, more than {:g} times "
                          "the median over noise levels: the model may predict another target than "
                          "the loss compares it with.",
                          lowest_noise, point.step.step, kMaxMismatch));
  }

  const double max_timestep_;
  const double max_share_;
  const std::int64_t empty_steps_;
  NamedScalar timesteps_;
  bool has_timesteps_ = false;
  PerSeries<State> states_;
};

}  // namespace

const RuleDescriptor& timestep_loss_imbalance_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Noise levels of a diffusion training that one bin dominates, or misses.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kLoss,
      .advice = {"The mean loss hides it: some noise levels are not learnt, and samples come out "
                 "noisy, washed out or without structure.",
                 kCauses,
                 "Plot the loss over noise levels; check the sampler, the schedule and the "
                 "prediction type, or weight the loss by its signal-to-noise ratio."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<TimestepLossImbalance>,
  };
  return kDescriptor;
}

}  // namespace tensortap
