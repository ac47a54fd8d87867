// AttentionLogitGrowth: attention logits that grow until the training diverges.
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

constexpr std::string_view kName = "AttentionLogitGrowth";
constexpr std::string_view kCollection = "attention_logits";

constexpr std::string_view kDoc =
    R"(Watches S, the largest attention logit of a layer (after the division by the root of the
head's width, before mask and softmax). S above `warn` warns, above `critical` is critical; each
is told once until S is below again. A trend warns as well: when S is above `trend_from` and log S
over the last 20 points lies on a rising line (R squared above 0.8) that crosses `critical` within
`horizon` steps.

Logits must be recorded, since fused attention does not hold them: save them, or those of a sample
of 64 query rows, in the collection `attention_logits`; or save the maximum as a scalar that
`tensor_regex` matches. With `query_regex` and `key_regex` the rule computes an upper bound
instead, from raw values of the outputs of the two projections: largest |q| times largest |k| over
the root of `head_width`, heads being slices of the last axis. A bound only warns, and has no
trend.

Source: arXiv 2309.14322 and 2410.16682; Kimi K2 rescales weights above 100 (2507.20534). The
limit of 1000 is recalled; `trend_from` is ours, since every attention starts with small logits
that grow.)";

constexpr std::array<ParameterDescriptor, 8> kParameters = {{
    {"tensor_regex", ParameterType::kString,
     "(attention|attn)_logits|max_(attention|attn)_logit|^scalar/.*max_logit",
     "Pattern of names of attention logits, or of their maxima."},
    {"warn", ParameterType::kFloat, "100", "Logit that warns.", 0.0},
    {"critical", ParameterType::kFloat, "1000", "Logit that is critical.", 0.0},
    {"horizon", ParameterType::kInt, "5000",
     "Steps within which a trend must cross the critical logit.", 1},
    {"trend_from", ParameterType::kFloat, "10", "Logit below which a trend is let be.", 0.0},
    {"query_regex", ParameterType::kString, "", "Pattern of names of query projections."},
    {"key_regex", ParameterType::kString, "",
     "Pattern of names of key projections, in the order of the query projections."},
    {"head_width", ParameterType::kInt, "64", "Width of a head, for the bound.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 3> kCauses = {
    "a learning rate that is too high for attention without normalised queries and keys",
    "weights of the query and key projections that grow without decay",
    "no warm-up",
};

constexpr std::size_t kTrendPoints = 20;
constexpr double kMinRSquared = 0.8;

std::vector<std::string> regexes_of(const Parameters& parameters) {
  std::vector<std::string> regexes = {parameters.get_string("tensor_regex")};
  for (const char* name : {"query_regex", "key_regex"}) {
    if (parameters.is_set(name)) regexes.push_back(parameters.get_string(name));
  }
  return regexes;
}

// A regex that matches nothing where none was given.
std::string regex_or_none(const Parameters& parameters, std::string_view name) {
  return parameters.is_set(name) ? parameters.get_string(name) : "(?!)";
}

class AttentionLogitGrowth : public TensorRule {
 public:
  explicit AttentionLogitGrowth(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)}, .regexes = regexes_of(parameters)}),
        warn_(parameters.get_float("warn")),
        critical_(parameters.get_float("critical")),
        horizon_(static_cast<double>(parameters.get_int("horizon"))),
        trend_from_(parameters.get_float("trend_from")),
        head_width_(static_cast<std::size_t>(parameters.get_int("head_width"))),
        queries_({}, {regex_or_none(parameters, "query_regex")}),
        keys_({}, {regex_or_none(parameters, "key_regex")}) {}

 protected:
  void begin(const StepView&) override {
    query_norms_.clear();
    key_norms_.clear();
  }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const bool is_query = queries_.selects(worker, row.tensor);
    if (is_query || keys_.selects(worker, row.tensor)) {
      note_projection(worker, row, is_query ? query_norms_ : key_norms_);
      return;
    }
    if (row.statistics.finite_count() == 0) return;
    judge(step, worker, row, row.statistics.max, false, findings);
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    const std::size_t pairs = std::min(query_norms_.size(), key_norms_.size());
    for (std::size_t i = 0; i < pairs; ++i) {
      const Projection& query = query_norms_[i];
      const double bound = query.norm * key_norms_[i].norm / std::sqrt(double(head_width_));
      judge(step, *query.worker, *query.row, bound, true, findings);
    }
  }

 private:
  struct Projection {
    const WorkerStep* worker;
    const StatisticsRow* row;
    double norm;  // the largest of a head's vectors
  };
  struct Layer {
    RollingWindow steps{kTrendPoints};
    RollingWindow logs{kTrendPoints};
    Persistence high;
    Persistence very_high;
    Persistence trend;
  };

  void note_projection(const WorkerStep& worker, const StatisticsRow& row,
                       std::vector<Projection>& projections) {
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values || values->elements.size() % head_width_ != 0) {
      note_missing_values();
      return;
    }
    double largest = 0.0;
    for (std::size_t i = 0; i < values->elements.size(); i += head_width_) {
      double squares = 0.0;
      for (std::size_t j = i; j < i + head_width_; ++j) {
        squares += values->elements[j] * values->elements[j];
      }
      largest = std::max(largest, squares);
    }
    projections.push_back({&worker, &row, std::sqrt(largest)});
  }

  void judge(const StepView& step, const WorkerStep& worker, const StatisticsRow& row, double logit,
             bool is_bound, std::vector<Finding>* findings) {
    if (!std::isfinite(logit)) return;
    Layer& layer = layers_.at(worker, row.tensor, step.mode);
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), logit, findings};
    const std::string_view what =
        is_bound ? "The bound of the attention logits" : "The largest attention logit";
    if (layer.high.tell(logit > warn_, 1, point.is_judged())) {
      point.add(is_bound ? "bound" : "max", logit, warn_, Severity::kWarning,
                fmt::format("{} of {} is {:.4g} at step {}, above {:g}.", what, point.name, logit,
                            step.step, warn_));
    }
    if (is_bound) return;
    if (layer.very_high.tell(logit > critical_, 1, point.is_judged())) {
      point.add("max", logit, critical_, Severity::kCritical,
                fmt::format("{} of {} is {:.4g} at step {}, above {:g}: the softmax has become a "
                            "choice, and the training is about to diverge.",
                            what, point.name, logit, step.step, critical_));
    }
    if (logit > 0.0) judge_trend(point, layer);
  }

  void judge_trend(const ScalarPoint& point, Layer& layer) const {
    const auto step = static_cast<double>(point.step.mode_step);
    layer.steps.push(step);
    layer.logs.push(std::log(point.value));
    if (!layer.logs.is_full()) return;
    std::array<double, kTrendPoints> x{};
    std::array<double, kTrendPoints> y{};
    for (std::size_t i = 0; i < kTrendPoints; ++i) {
      x[i] = layer.steps[i];
      y[i] = layer.logs[i];
    }
    const Line line = fit_line(x, y);
    const double crossing = (std::log(critical_) - line.intercept) / line.slope;
    const bool is_growing = line.slope > 0.0 && line.r_squared > kMinRSquared &&
                            point.value >= trend_from_ && point.value <= critical_ &&
                            crossing <= step + horizon_;
    if (!layer.trend.tell(is_growing, 1, point.is_judged())) return;
    point.add("max", point.value, critical_, Severity::kWarning,
              fmt::format("The largest attention logit of {} is {:.4g} at step {} and grows: at "
                          "this pace it crosses {:g} at step {:.0f}.",
                          point.name, point.value, point.step.step, critical_, crossing));
  }

  const double warn_;
  const double critical_;
  const double horizon_;
  const double trend_from_;
  const std::size_t head_width_;
  TensorSelector queries_;
  TensorSelector keys_;
  std::vector<Projection> query_norms_;
  std::vector<Projection> key_norms_;
  PerSeries<Layer> layers_;
};

}  // namespace

const RuleDescriptor& attention_logit_growth_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Attention logits that grow until the training diverges.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"With large logits the softmax is one-hot, its gradient vanishes, and in low "
                 "precision it overflows; the loss diverges some time later.",
                 kCauses,
                 "Normalise queries and keys, clip or rescale the projections, or lower the "
                 "learning rate."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<AttentionLogitGrowth>,
  };
  return kDescriptor;
}

}  // namespace tensortap
