// AttentionEntropyCollapse: attention heads that look at a single key each.
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

constexpr std::string_view kName = "AttentionEntropyCollapse";
constexpr std::string_view kCollection = "attention_weights";

constexpr std::string_view kDoc =
    R"(A head's entropy is that of its attention weights divided by the logarithm of the number of
visible keys, averaged over queries that see at least 8 keys. A head has collapsed when it is below
`collapsed` and was above `healthy` at its first 5 points. Fires when more than `max_share` of a
layer's heads have, at `persist` points in a row. Heads that give more than 95% of their weight to
the first token are sinks, which are normal in trained language models: they do not count.

Attention weights (after the softmax, shape [..., heads, queries, keys]) are saved by the script
with raw values, whole or for a sample, in the collection `attention_weights` or under a name that
`tensor_regex` matches. A square of weights that is zero above its diagonal is taken as causal:
query i sees i + 1 keys; else each sees all. Or save each head's entropy, computed in this way, as
a tensor that `entropy_regex` matches; sinks are not known then.

Source: arXiv 2303.06296, where low entropy goes with instability; EMNLP 2025 main 421. The limits
are ours.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"tensor_regex", ParameterType::kString,
     "(attention|attn)_(weights|probs|probabilities)(_output_\\d+)?$",
     "Pattern of names of attention weights."},
    {"entropy_regex", ParameterType::kString, "(attention|attn)_entrop(y|ies)$",
     "Pattern of names of heads' entropies, from 0 to 1."},
    {"collapsed", ParameterType::kFloat, "0.05", "Entropy below which a head has collapsed.", 0.0,
     1.0},
    {"healthy", ParameterType::kFloat, "0.2", "Entropy that it must have had at the start.", 0.0,
     1.0},
    {"max_share", ParameterType::kFloat, "0.25", "Share of a layer's heads that fires.", 0.0, 1.0},
    {"persist", ParameterType::kInt, "3", "Points in a row that fire.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 3> kCauses = {
    "a learning rate that is too high, or no warm-up",
    "queries and keys that grow without normalisation",
    "normalisation after the residual sum (post-LN) in a deep model",
};

constexpr std::size_t kMinVisible = 8;
constexpr double kSinkMass = 0.95;
constexpr std::size_t kEarlyPoints = 5;

struct Head {
  double entropy = 0.0;
  double first_mass = 0.0;  // on the first key
  std::size_t queries = 0;  // that were counted
};

bool is_causal(std::span<const double> elements, std::size_t queries, std::size_t keys) {
  if (queries != keys || queries < 2) return false;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::size_t query = i / keys % queries;
    if (i % keys > query && elements[i] != 0.0) return false;
  }
  return true;
}

void add_query(std::span<const double> weights, Head& head) {
  double entropy = 0.0;
  for (const double weight : weights) {
    if (weight > 0.0) entropy -= weight * std::log(weight);
  }
  if (!std::isfinite(entropy)) return;
  head.entropy += entropy / std::log(static_cast<double>(weights.size()));
  head.first_mass += weights.front();
  ++head.queries;
}

// Nothing when the shape is not that of attention weights, or no query sees enough keys.
std::vector<Head> heads_of(const TensorValues& values) {
  const std::size_t axes = values.shape.size();
  if (axes < 3 || values.elements.empty()) return {};
  const auto count = static_cast<std::size_t>(values.shape[axes - 3]);
  const auto queries = static_cast<std::size_t>(values.shape[axes - 2]);
  const auto keys = static_cast<std::size_t>(values.shape[axes - 1]);
  const bool causal = is_causal(values.elements, queries, keys);
  std::vector<Head> heads(count);
  for (std::size_t row = 0; row < values.elements.size() / keys; ++row) {
    const std::size_t visible = causal ? row % queries + 1 : keys;
    if (visible < kMinVisible) continue;
    add_query(std::span<const double>(values.elements).subspan(row * keys, visible),
              heads[row / queries % count]);
  }
  for (Head& head : heads) {
    if (head.queries == 0) return {};
    head.entropy /= static_cast<double>(head.queries);
    head.first_mass /= static_cast<double>(head.queries);
  }
  return heads;
}

class AttentionEntropyCollapse : public TensorRule {
 public:
  explicit AttentionEntropyCollapse(const Parameters& parameters)
      : TensorRule({.collections = {std::string(kCollection)},
                    .regexes = {parameters.get_string("tensor_regex"),
                                parameters.get_string("entropy_regex")}}),
        entropies_({}, {parameters.get_string("entropy_regex")}),
        collapsed_(parameters.get_float("collapsed")),
        healthy_(parameters.get_float("healthy")),
        max_share_(parameters.get_float("max_share")),
        persist_(parameters.get_int("persist")) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) {
      note_missing_values();
      return;
    }
    std::vector<Head> heads;
    if (entropies_.selects(worker, row.tensor)) {
      for (const double entropy : values->elements) heads.push_back({entropy, 0.0, 1});
    } else {
      heads = heads_of(*values);
    }
    if (heads.empty()) return;
    Layer& layer = layers_.at(worker, row.tensor, step.mode);
    if (layer.early.size() != heads.size()) {
      layer = Layer();
      layer.early.assign(heads.size(), 0.0);
    }
    if (layer.early_points < kEarlyPoints) {
      ++layer.early_points;
      for (std::size_t i = 0; i < heads.size(); ++i) {
        layer.early[i] += heads[i].entropy / double(kEarlyPoints);
      }
      return;
    }
    judge({step, worker, row, tensor_name(worker, row), 0.0, findings}, heads, layer);
  }

 private:
  struct Layer {
    std::vector<double> early;  // [head]: mean of the first points
    std::size_t early_points = 0;
    Persistence collapsed;
  };

  void judge(const ScalarPoint& point, const std::vector<Head>& heads, Layer& layer) const {
    std::size_t collapsed = 0;
    std::size_t sinks = 0;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (heads[i].first_mass > kSinkMass) {
        ++sinks;
      } else if (heads[i].entropy < collapsed_ && layer.early[i] > healthy_) {
        ++collapsed;
      }
    }
    const double share = static_cast<double>(collapsed) / static_cast<double>(heads.size());
    if (!layer.collapsed.tell(share > max_share_, persist_, point.is_judged())) return;
    point.add("collapsed_share", share, max_share_, Severity::kWarning,
              fmt::format("{} of {} heads of {} have collapsed at step {}: their entropy is below "
                          "{:g} of the largest possible.{}",
                          collapsed, heads.size(), point.name, point.step.step, collapsed_,
                          sinks > 0 ? fmt::format(" {} more look at the first token.", sinks)
                                    : std::string()));
  }

  TensorSelector entropies_;
  const double collapsed_;
  const double healthy_;
  const double max_share_;
  const std::int64_t persist_;
  PerSeries<Layer> layers_;
};

}  // namespace

const RuleDescriptor& attention_entropy_collapse_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Attention heads that look at a single key each.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kActivation,
      .advice = {"Such a head's softmax has no gradient left, and the collapse of many announces "
                 "a loss that diverges.",
                 kCauses,
                 "Warm the learning rate up or lower it, normalise queries and keys, or "
                 "reparametrise the weights."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<AttentionEntropyCollapse>,
  };
  return kDescriptor;
}

}  // namespace tensortap
