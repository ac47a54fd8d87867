// DeadExperts: a mixture of experts whose router sends nearly everything to a few.
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

constexpr std::string_view kName = "DeadExperts";
constexpr std::string_view kCollection = "expert_load";

constexpr std::string_view kDoc =
    R"(Judges how a router spreads tokens over the experts of a layer. The script saves, per
layer, the number (or share) of tokens that each expert got: a 1-D tensor in the collection
`expert_load`, or of a name that `tensor_regex` matches, with its raw value (`save_tensor` keeps
it). Loads are added up over the last `window` steps and over all workers; u = load * experts /
total is 1 for an expert with its fair share. An expert with u below `dead_load` is dead. After
the first `grace` steps it fires when

- any expert is dead for `dead_steps` steps (warning), or more than a quarter of them are
  (critical);
- the coefficient of variation of the loads exceeds 1, one expert has more than 5 times its share,
  or the entropy of the loads falls below half of its maximum (warning);
- more than `max_dropped` of the tokens are dropped: a scalar that `dropped_regex` matches
  (warning).

Micro-batches alone are too small to judge, hence the window.

Source: router collapse: torchtitan #1246, NeMo Automodel PR #1232 (0 = dead), prime-rl PR #2953,
arXiv 2408.15664 and 2505.22323. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 7> kParameters = {{
    {"tensor_regex", ParameterType::kString, "(expert_(load|counts?)|tokens_per_expert)",
     "Pattern of names of tensors with one load per expert."},
    {"dropped_regex", ParameterType::kString,
     "^scalar/(.*/)?(dropped_tokens?|token_drop)_(share|fraction|ratio|rate)$",
     "Pattern of names of the share of dropped tokens."},
    {"window", ParameterType::kInt, "20", "Steps over which loads are added up.", 1},
    {"grace", ParameterType::kInt, "100", "Steps at the start that are not judged.", 0},
    {"dead_load", ParameterType::kFloat, "0.01", "Share of the fair load below which one is dead.",
     0.0, 1.0},
    {"dead_steps", ParameterType::kInt, "100", "Steps with a dead expert that fire.", 1},
    {"max_dropped", ParameterType::kFloat, "0.1", "Share of dropped tokens that is tolerated.", 0.0,
     1.0},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "no balancing: an auxiliary loss or bias that is zero or too small",
    "a router that learns too fast",
    "balancing per micro-batch instead of over the whole batch",
    "experts that were initialised alike, so that a few win by chance",
};

class DeadExperts : public TensorRule {
 public:
  explicit DeadExperts(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("tensor_regex"),
                                parameters.get_string("dropped_regex")}}),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        grace_(parameters.get_int("grace")),
        dead_load_(parameters.get_float("dead_load")),
        dead_steps_(parameters.get_int("dead_steps")),
        max_dropped_(parameters.get_float("max_dropped")),
        dropped_({}, {parameters.get_string("dropped_regex")}) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (dropped_.selects(worker, row.tensor)) {
      judge_dropped(step, worker, row, findings);
      return;
    }
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) {
      note_missing_values();
      return;
    }
    if (values->elements.size() < 2) return;
    Layer& layer = layer_named(tensor_name(worker, row));
    layer.now.resize(values->elements.size(), 0.0);
    for (std::size_t i = 0; i < layer.now.size(); ++i) layer.now[i] += values->elements[i];
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    for (Layer& layer : layers_) {
      if (layer.now.empty()) continue;
      add_up(layer);
      if (++layer.points > grace_) judge(step, layer, findings);
    }
  }

 private:
  struct Layer {
    std::string name;
    std::vector<double> now;                  // this step's, over all workers
    std::vector<std::vector<double>> recent;  // ring of the window's steps
    std::size_t next = 0;
    std::vector<double> sum;
    std::int64_t points = 0;
    Persistence dead;
    Persistence many_dead;
    Persistence uneven;
  };

  Layer& layer_named(const std::string& name) {
    const auto at = std::find_if(layers_.begin(), layers_.end(),
                                 [&](const Layer& layer) { return layer.name == name; });
    if (at != layers_.end()) return *at;
    layers_.emplace_back();
    layers_.back().name = name;
    return layers_.back();
  }

  void add_up(Layer& layer) const {
    if (layer.sum.size() != layer.now.size()) {  // the first step, or another number of experts
      layer.recent.clear();
      layer.next = 0;
      layer.sum.assign(layer.now.size(), 0.0);
    }
    if (layer.recent.size() < window_) layer.recent.emplace_back(layer.now.size(), 0.0);
    layer.recent[layer.next].swap(layer.now);
    layer.next = (layer.next + 1) % window_;
    layer.now.clear();
    std::fill(layer.sum.begin(), layer.sum.end(), 0.0);
    for (const std::vector<double>& loads : layer.recent) {
      for (std::size_t i = 0; i < loads.size(); ++i) layer.sum[i] += loads[i];
    }
  }

  void judge(const StepView& step, Layer& layer, std::vector<Finding>* findings) const {
    double total = 0.0;
    for (const double load : layer.sum) total += load;
    if (!(total > 0.0) || !std::isfinite(total)) return;
    const auto experts = static_cast<double>(layer.sum.size());
    double dead = 0.0;
    double squares = 0.0;
    double entropy = 0.0;
    double highest = 0.0;
    for (const double load : layer.sum) {
      const double share = load / total;
      const double u = share * experts;
      dead += u < dead_load_ ? 1.0 : 0.0;
      squares += (u - 1.0) * (u - 1.0);
      highest = std::max(highest, u);
      if (share > 0.0) entropy -= share * std::log(share);
    }
    entropy /= std::log(experts);
    const double variation = std::sqrt(squares / experts);
    const std::string spread = fmt::format(
        "{:g} of {:g} experts are dead; coefficient of variation {:.2f}, highest load {:.1f} times "
        "the fair one, entropy {:.2f} of its maximum",
        dead, experts, variation, highest, entropy);
    const bool has_many_dead = dead > 0.25 * experts;
    if (layer.many_dead.tell(has_many_dead, 1, findings != nullptr)) {
      add(step, layer, {"dead_experts", dead, 0.25 * experts, Severity::kCritical},
          "More than a quarter of the experts get nothing", spread, findings);
    }
    if (layer.dead.tell(dead > 0.0, dead_steps_, findings != nullptr)) {
      add(step, layer, {"dead_experts", dead, 0.0, Severity::kWarning},
          fmt::format("Experts have got nothing for {} steps", dead_steps_), spread, findings);
    }
    const bool is_uneven = variation > 1.0 || highest - 1.0 > 4.0 || entropy < 0.5;
    if (layer.uneven.tell(is_uneven && !has_many_dead, 1, findings != nullptr)) {
      add(step, layer, {"load_variation", variation, 1.0, Severity::kWarning},
          "The load is very uneven", spread, findings);
    }
  }

  struct Measure {
    std::string_view statistic;
    double observed;
    double threshold;
    Severity severity;
  };
  static void add(const StepView& step, const Layer& layer, const Measure& measure,
                  std::string_view what, std::string_view spread, std::vector<Finding>* findings) {
    Finding& finding = findings->emplace_back(finding_at(step, layer.name, ""));
    finding.statistic = measure.statistic;
    finding.observed = measure.observed;
    finding.threshold = measure.threshold;
    finding.severity = measure.severity;
    finding.message = fmt::format("{} in {} at step {}: {}.", what, layer.name, step.step, spread);
  }

  void judge_dropped(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                     std::vector<Finding>* findings) {
    const double share = row.statistics.mean;
    Persistence& dropping = dropping_.at(worker, row.tensor, step.mode);
    if (!dropping.tell(share > max_dropped_, 1, findings != nullptr)) return;
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), share, findings};
    point.add("mean", share, max_dropped_, Severity::kWarning,
              fmt::format("{:.1f} % of the tokens were dropped at step {} ({}).", 100.0 * share,
                          step.step, point.name));
  }

  const std::size_t window_;
  const std::int64_t grace_;
  const double dead_load_;
  const std::int64_t dead_steps_;
  const double max_dropped_;
  TensorSelector dropped_;
  std::vector<Layer> layers_;
  PerSeries<Persistence> dropping_;
};

}  // namespace

const RuleDescriptor& dead_experts_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A router that sends nearly everything to a few experts.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"Experts that get no tokens learn nothing and hold memory; the others are a "
                 "smaller model than the one that was paid for.",
                 kCauses,
                 "Raise the balancing loss or bias, lower the router's learning rate, and balance "
                 "over the global batch."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<DeadExperts>,
  };
  return kDescriptor;
}

}  // namespace tensortap
