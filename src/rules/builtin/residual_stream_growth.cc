// ResidualStreamGrowth: outputs of blocks that grow.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ResidualStreamGrowth";

constexpr std::string_view kDoc =
    R"(Follows the RMS of each block's output (`tensor_regex`: outputs of layers and blocks of
transformers, or the collection `block_output`). More than `warn_ratio` times the median of its
last 200 points, at `persist` points in a row, warns; more than `critical_ratio` times is
critical. Points that are above do not join the median. When the last block's RMS exceeds the
first one's more than 100 times, an info says so once. Nothing is judged before 20 points.

Source: arXiv 2410.16682 (norms of projections grow before divergence) and 2309.14322. The limits
are ours.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"tensor_regex", ParameterType::kString, "(blocks?|layers?|h)\\.\\d+_output_0$",
     "Pattern of names of blocks' outputs."},
    {"warn_ratio", ParameterType::kFloat, "2", "RMS against its median that warns.", 1.0},
    {"critical_ratio", ParameterType::kFloat, "4", "RMS against its median that is critical.", 1.0},
    {"persist", ParameterType::kInt, "10", "Points in a row that fire.", 1},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high",
    "no weight decay on the projections into the residual stream",
    "no normalisation before or after the block",
    "initial weights that are not scaled with the depth",
};

class ResidualStreamGrowth : public TensorRule {
 public:
  explicit ResidualStreamGrowth(const Parameters& parameters)
      : TensorRule(
            {.collections = {"block_output"}, .regexes = {parameters.get_string("tensor_regex")}}),
        warn_ratio_(parameters.get_float("warn_ratio")),
        critical_ratio_(parameters.get_float("critical_ratio")),
        persist_(parameters.get_int("persist")) {}

 protected:
  void begin(const StepView&) override {
    first_ = 0.0;
    last_ = 0.0;
  }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const double rms = statistic_value(row.statistics, StatisticId::kRms);
    if (!std::isfinite(rms)) return;
    if (first_ == 0.0) first_ = rms;
    last_ = rms;
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), rms, findings};
    judge_depth(point);
    Block& block = blocks_.at(worker, row.tensor, step.mode);
    if (block.past.size() < kMinPoints) {
      block.past.push(rms);
      return;
    }
    const double median = block.past.median();
    const bool is_high = rms > warn_ratio_ * median;
    const bool alarms =
        block.very_high.tell(rms > critical_ratio_ * median, persist_, point.is_judged());
    const bool warns = block.high.tell(is_high, persist_, point.is_judged());
    if (!is_high) block.past.push(rms);
    if (!alarms && !warns) return;
    const double ratio = alarms ? critical_ratio_ : warn_ratio_;
    point.add("rms", rms, ratio * median, alarms ? Severity::kCritical : Severity::kWarning,
              fmt::format("The RMS of {} is {:.4g} at step {}, more than {:g} times its median of "
                          "{:.4g} for {} points.",
                          point.name, rms, step.step, ratio, median, persist_));
  }

 private:
  static constexpr std::size_t kMinPoints = 20;
  static constexpr double kMaxDepthRatio = 100.0;

  struct Block {
    RollingWindow past{200};
    Persistence high;
    Persistence very_high;
  };

  void judge_depth(const ScalarPoint& point) {
    const bool is_steep = last_ > kMaxDepthRatio * first_ && first_ > 0.0;
    if (!is_steep || is_depth_told_ || !point.is_judged()) return;
    is_depth_told_ = true;
    point.add("rms", last_, kMaxDepthRatio * first_, Severity::kInfo,
              fmt::format("The RMS of {} is {:.4g} at step {}, {:.0f} times that of the first "
                          "block.",
                          point.name, last_, point.step.step, last_ / first_));
  }

  const double warn_ratio_;
  const double critical_ratio_;
  const std::int64_t persist_;
  double first_ = 0.0;
  double last_ = 0.0;
  bool is_depth_told_ = false;
  PerSeries<Block> blocks_;
};

}  // namespace

const RuleDescriptor& residual_stream_growth_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Outputs of blocks that grow.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"The residual stream carries everything; when it outgrows what later layers "
                 "expect, the loss diverges.",
                 kCauses,
                 "Look at the norms of the projections into the stream, and lower the learning "
                 "rate or decay their weights."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<ResidualStreamGrowth>,
  };
  return kDescriptor;
}

}  // namespace tensortap
