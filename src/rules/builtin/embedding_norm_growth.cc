// EmbeddingNormGrowth: embeddings of which single rows, or all, outgrow the rest.
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

constexpr std::string_view kName = "EmbeddingNormGrowth";

constexpr std::string_view kDoc =
    R"(Looks at weights of embeddings (`tensor_regex`) and at their gradients. Warns when the 99th
percentile of the norms of a weight's rows exceeds `max_tail` times their median (raw values only);
when the root mean square of the rows' norms has doubled within `window` points, which should be
about a tenth of the run, while no learning rate rose; and when the norm of an embedding's gradient
exceeds `max_gradient` times the median norm of the other gradients of the step, at `persist` points
in a row. Each is told once until it is over. Rows that never had a gradient (unused tokens) are no
illness.

Needs the collections `weights`, `gradients` and `learning_rates`; what is missing is not judged.

Source: GLM-130B, arXiv 2210.02414, traced spikes to gradients of the embedding; 2409.07787. The
limits are ours.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"tensor_regex", ParameterType::kString, "(?i)(embed|wte|wpe)[^/]*weight$",
     "Pattern of names of weights of embeddings; their gradients' names hold these."},
    {"max_tail", ParameterType::kFloat, "10", "99th percentile over median that warns.", 1.0},
    {"window", ParameterType::kInt, "1000", "Points within which a doubling warns.", 1},
    {"max_gradient", ParameterType::kFloat, "10", "Gradient norm over the median that warns.", 1.0},
    {"persist", ParameterType::kInt, "5", "Points in a row, for gradients.", 1},
}};

constexpr std::array<std::string_view, 3> kCollections = {"weights", "gradients", "learning_rates"};

constexpr std::array<std::string_view, 4> kCauses = {
    "a learning rate that is too high for embeddings, or no warm-up",
    "weights that are shared between embedding and output layer",
    "no weight decay on embeddings",
    "a few tokens that are far more frequent than the rest",
};

constexpr double kMaxGrowth = 2.0;
constexpr double kTail = 0.99;

// Linear between neighbours, as NumPy's default.
double quantile(std::vector<double>& values, double share) {
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(place);
  const auto at = values.begin() + below;
  std::nth_element(values.begin(), at, values.end());
  if (at + 1 == values.end()) return *at;
  const double next = *std::min_element(at + 1, values.end());
  return *at + (place - static_cast<double>(below)) * (next - *at);
}

class EmbeddingNormGrowth : public TensorRule {
 public:
  explicit EmbeddingNormGrowth(const Parameters& parameters)
      : TensorRule(
            {.collections = {"gradients"}, .regexes = {parameters.get_string("tensor_regex")}}),
        embeddings_({}, {parameters.get_string("tensor_regex")}),
        max_tail_(parameters.get_float("max_tail")),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        max_gradient_(parameters.get_float("max_gradient")),
        persist_(parameters.get_int("persist")) {}

  std::string missing_input() const override {
    return has_embedding_ ? ""
                          : "no embedding is among the weights and gradients, see its "
                            "tensor_regex";
  }

 protected:
  void begin(const StepView&) override { gradients_.clear(); }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const bool is_embedding = embeddings_.selects(worker, row.tensor);
    const std::vector<std::string>& collections =
        worker.dictionary->tensors[row.tensor].collections;
    const bool is_gradient =
        std::find(collections.begin(), collections.end(), "gradients") != collections.end();
    if (!is_gradient && (!is_embedding || row.statistics.count < 2)) return;
    has_embedding_ = has_embedding_ || is_embedding;
    const double norm = statistic_value(row.statistics, StatisticId::kL2);
    if (!std::isfinite(norm)) return;
    if (is_gradient) {
      gradients_.push_back({&worker, &row, norm, is_embedding});
      return;
    }
    const bool is_weight = layout_of(worker, row).shape.size() == 2 &&
                           tensor_name(worker, row).find('/') == std::string::npos;
    if (!is_weight) return;
    State& state = states_.at(worker, row.tensor, step.mode);
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), norm, findings};
    judge_tail(point, state);
    judge_growth(point, state);
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (const Gradient& gradient : gradients_) {
      if (!gradient.is_embedding) continue;
      others_.clear();
      for (const Gradient& other : gradients_) {
        if (other.worker == gradient.worker && !other.is_embedding) others_.push_back(other.norm);
      }
      if (others_.empty()) continue;
      const double limit = max_gradient_ * quantile(others_, 0.5);
      State& state = states_.at(*gradient.worker, gradient.row->tensor, step.mode);
      const ScalarPoint point{step,          *gradient.worker,
                              *gradient.row, tensor_name(*gradient.worker, *gradient.row),
                              gradient.norm, findings};
      const bool is_high = gradient.norm > limit && limit > 0.0;
      if (!state.ill.tell(is_high, persist_, point.is_judged())) continue;
      point.add("l2", gradient.norm, limit, Severity::kWarning,
                fmt::format("The norm of {} is {:.4g} at step {}, more than {:g} times the median "
                            "of the other gradients for {} points.",
                            point.name, gradient.norm, step.step, max_gradient_, persist_));
    }
  }

 private:
  struct Gradient {
    const WorkerStep* worker;
    const StatisticsRow* row;
    double norm;
    bool is_embedding;
  };
  struct State {
    RollingWindow norms;
    RollingWindow rates;
    Persistence ill;  // the tail of a weight, or a gradient
    Persistence grown;
  };

  void judge_tail(const ScalarPoint& point, State& state) const {
    const std::optional<TensorValues> values = values_of(point.worker, point.row);
    if (!values) return;
    const auto width = static_cast<std::size_t>(values->shape[1]);
    std::vector<double> norms;
    for (std::size_t i = 0; i < values->elements.size(); i += width) {
      double squares = 0.0;
      for (std::size_t j = i; j < i + width; ++j)
        squares += values->elements[j] * values->elements[j];
      if (std::isfinite(squares)) norms.push_back(std::sqrt(squares));
    }
    if (norms.empty()) return;
    const double tail = quantile(norms, kTail);
    const double limit = max_tail_ * quantile(norms, 0.5);
    if (!state.ill.tell(tail > limit, 1, point.is_judged())) return;
    point.add(
        "row_norm_p99", tail, limit, Severity::kWarning,
        fmt::format("The 99th percentile of the norms of {}'s rows is {:.4g} at step {}, more "
                    "than {:g} times their median.",
                    point.name, tail, point.step.step, max_tail_));
  }

  void judge_growth(const ScalarPoint& point, State& state) {
    if (state.norms.size() == 0) {
      state.norms = RollingWindow(window_);
      state.rates = RollingWindow(window_);
    }
    const auto rows = static_cast<double>(layout_of(point.worker, point.row).shape[0]);
    const double norm = point.value / std::sqrt(rows);
    const double rate = rate_.value(point.worker).value_or(0.0);
    const double least = state.norms.size() > 0 ? state.norms.minimum() : norm;
    const double least_rate = state.rates.size() > 0 ? state.rates.minimum() : rate;
    const bool is_rising = rate > least_rate;
    state.norms.push(norm);
    state.rates.push(std::isfinite(rate) ? rate : 0.0);
    const bool has_grown = least > 0.0 && norm >= kMaxGrowth * least && !is_rising;
    if (!state.grown.tell(has_grown, 1, point.is_judged())) return;
    point.add("row_norm", norm, kMaxGrowth * least, Severity::kWarning,
              fmt::format("The norm of {}'s rows has grown from {:.4g} to {:.4g} within {} points "
                          "up to step {}, at a learning rate that did not rise.",
                          point.name, least, norm, window_, point.step.step));
  }

  TensorSelector embeddings_;
  const double max_tail_;
  const std::size_t window_;
  const double max_gradient_;
  const std::int64_t persist_;
  NamedScalar rate_{"^learning_rate/"};
  bool has_embedding_ = false;
  std::vector<Gradient> gradients_;
  std::vector<double> others_;
  PerSeries<State> states_;
};

}  // namespace

const RuleDescriptor& embedding_norm_growth_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Embeddings of which single rows, or all, outgrow the rest.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kWeights,
      .advice =
          {"Every layer sees the embedding first; rows that outgrow the rest, and gradients "
           "that do, precede spikes of the loss.",
           kCauses,
           "Warm up or lower the embedding's learning rate, shrink its gradient, or decay its "
           "weights."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<EmbeddingNormGrowth>,
  };
  return kDescriptor;
}

}  // namespace tensortap
