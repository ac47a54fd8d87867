// RankDivergence: replicas of one model that are no longer equal.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "RankDivergence";

constexpr std::string_view kDoc =
    R"(Compares the statistics of each weight over the workers, bit for bit: replicas of
data-parallel training hold equal weights, and equal weights have equal statistics. A difference
is critical and is told once, with the first weight that differs; when most workers agree, the
others are the suspects. With `tolerance`, statistics may differ by that share of the weight's
largest magnitude. A weight whose shapes differ is sharded and is not compared; `replica_groups`
names which workers are replicas of each other.

Also critical: gradient norms (`gradient_norm/before_clipping`) that differ by more than a
ten-thousandth, since the exchange of gradients makes them equal. A loss that is the same on all
workers for 5 steps warns: they see the same data.

Needs a run with several workers (`include_workers="all"`). Compares every `interval` steps at
which weights were saved.

Source: Megatron-LM compares weight hashes across replicas; nanotron #242; silent data corruption
in large runs, arXiv 2502.12340.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"collection_names", ParameterType::kList, "weights,biases",
     "Collections of tensors that replicas share."},
    {"interval", ParameterType::kInt, "1", "Saved steps between comparisons.", 1},
    {"tolerance", ParameterType::kFloat, "0",
     "Difference that is tolerated, as a share of the largest magnitude; 0: none.", 0.0},
    {"replica_groups", ParameterType::kString, "",
     "Workers that are replicas of each other: \"worker_0 worker_1|worker_2 worker_3\"; unset: "
     "all."},
}};

constexpr std::array<std::string_view, 2> kCollections = {"weights", "biases"};

constexpr std::array<std::string_view, 5> kCauses = {
    "a module that is used past its DistributedDataParallel wrapper",
    "a parameter that is changed or initialised on one worker only",
    "buffers or random states that differ and leak into the weights",
    "a fault of the hardware (silent data corruption)",
    "workers that are no replicas: tensor or pipeline parallelism without replica_groups",
};

constexpr std::int64_t kEqualLosses = 5;
constexpr double kNormTolerance = 1e-4;

class RankDivergence : public TensorRule {
 public:
  explicit RankDivergence(const Parameters& parameters)
      : TensorRule({.collections = parameters.get_list("collection_names")}),
        interval_(parameters.get_int("interval")),
        tolerance_(parameters.get_float("tolerance")) {
    for (const std::string& group : split(parameters.get_string("replica_groups"), '|')) {
      const std::vector<std::string> workers = split(group, ' ');
      for (const std::string& worker : workers) groups_[worker] = group;
    }
  }

  std::string missing_input() const override {
    return worker_count_ > 1 ? ""
                             : "it compares workers, and the run has one: record several with "
                               "include_workers=\"all\"";
  }

 protected:
  void begin(const StepView& step) override {
    worker_count_ = std::max(worker_count_, step.workers.size());
    copies_.clear();
    is_compared_ = step.workers.size() > 1 && points_++ % interval_ == 0;
  }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (!is_compared_) return;
    copies_.push_back({&tensor_name(worker, row), &worker, &row, &layout_of(worker, row)});
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (step.workers.size() < 2) return;
    judge_norms(step, findings);
    judge_losses(step, findings);
    if (is_compared_) judge_copies(step, findings);
  }

 private:
  struct Copy {
    const std::string* name;
    const WorkerStep* worker;
    const StatisticsRow* row;
    const Layout* layout;
  };

  static std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::string part;
    for (const char c : text + separator) {
      if (c != separator) {
        part += c;
      } else if (!part.empty()) {
        parts.push_back(std::move(part));
        part.clear();
      }
    }
    return parts;
  }

  std::string_view group_of(const WorkerStep& worker) const {
    const auto at = groups_.find(std::string(worker.worker));
    return at == groups_.end() ? std::string_view() : std::string_view(at->second);
  }

  bool are_equal(const Copy& a, const Copy& b) const {
    const Statistics& x = a.row->statistics;
    const Statistics& y = b.row->statistics;
    const double room = tolerance_ * std::max(statistic_value(x, StatisticId::kAbsMax),
                                              statistic_value(y, StatisticId::kAbsMax));
    const auto is_near = [&](double p, double q) {
      return std::bit_cast<std::uint64_t>(p) == std::bit_cast<std::uint64_t>(q) ||
             std::abs(p - q) <= room;
    };
    const bool has_equal_spread = tolerance_ > 0.0
                                      ? is_near(std::sqrt(x.variance), std::sqrt(y.variance))
                                      : is_near(x.variance, y.variance);
    return x.nan_count == y.nan_count && is_near(x.mean, y.mean) && has_equal_spread &&
           is_near(x.min, y.min) && is_near(x.max, y.max) && is_near(x.abs_mean, y.abs_mean);
  }

  void judge_copies(const StepView& step, std::vector<Finding>* findings) {
    // Each weight's copies beside each other, the weights in the order of the first worker.
    std::unordered_map<std::string_view, std::vector<const Copy*>> by_name;
    std::vector<std::string_view> order;
    for (const Copy& copy : copies_) {
      std::vector<const Copy*>& same = by_name[*copy.name];
      if (same.empty()) order.push_back(*copy.name);
      same.push_back(&copy);
    }
    std::size_t differing = 0;
    Finding first;
    for (const std::string_view name : order) {
      if (!differs(step, name, by_name[name], first, differing == 0)) continue;
      ++differing;
    }
    if (!divergence_.tell(differing > 0, 1, findings != nullptr)) return;
    if (differing > 1) first.message += fmt::format(" So do {} other tensors.", differing - 1);
    findings->push_back(std::move(first));
  }

  bool differs(const StepView& step, std::string_view name, const std::vector<const Copy*>& copies,
               Finding& finding, bool is_first) const {
    // For each copy, how many replicas it equals, itself among them.
    std::vector<std::size_t> agreeing(copies.size(), 0);
    std::vector<std::size_t> replicas(copies.size(), 0);
    for (std::size_t i = 0; i < copies.size(); ++i) {
      for (const Copy* other : copies) {
        const bool is_replica = group_of(*copies[i]->worker) == group_of(*other->worker) &&
                                copies[i]->layout->shape == other->layout->shape;
        if (!is_replica) continue;
        ++replicas[i];
        agreeing[i] += are_equal(*copies[i], *other) ? 1 : 0;
      }
    }
    if (agreeing == replicas) return false;
    if (!is_first) return true;
    std::vector<std::string> suspects;
    const Copy* suspect = copies.front();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (2 * agreeing[i] >= replicas[i]) continue;
      suspects.emplace_back(copies[i]->worker->worker);
      suspect = copies[i];
    }
    const std::size_t most = *std::max_element(agreeing.begin(), agreeing.end());
    const bool has_majority = 2 * most > replicas.front() && !suspects.empty();
    finding = finding_at(step, name, has_majority ? suspect->worker->worker : "");
    finding.severity = Severity::kCritical;
    finding.statistic = "mean";
    finding.observed = suspect->row->statistics.mean;
    finding.threshold = tolerance_;
    finding.message =
        fmt::format("{} differs between workers at step {}; {}.", name, step.step,
                    has_majority ? "the others disagree with " + join(suspects, ", ")
                                 : std::string("there is no majority that would name a suspect"));
    return true;
  }

  void judge_norms(const StepView& step, std::vector<Finding>* findings) {
    double low = HUGE_VAL;
    double high = 0.0;
    for (const WorkerStep& worker : step.workers) {
      const std::optional<double> norm = norm_.value(worker);
      if (!norm || !std::isfinite(*norm) || !group_of(worker).empty()) continue;
      low = std::min(low, *norm);
      high = std::max(high, *norm);
    }
    const bool is_different = high > 0.0 && high - low > kNormTolerance * high;
    if (!norms_.tell(is_different, 1, findings != nullptr)) return;
    Finding& finding =
        findings->emplace_back(finding_at(step, "gradient_norm/before_clipping", ""));
    finding.severity = Severity::kCritical;
    finding.statistic = "mean";
    finding.observed = high;
    finding.threshold = low;
    finding.message = fmt::format(
        "The gradient norm is {:.6g} on one worker and {:.6g} on another at step {}: gradients "
        "are not exchanged.",
        low, high, step.step);
  }

  void judge_losses(const StepView& step, std::vector<Finding>* findings) {
    std::optional<double> first;
    bool are_equal = true;
    std::size_t count = 0;
    for (const WorkerStep& worker : step.workers) {
      const std::optional<double> loss = loss_of(worker);
      if (!loss || !std::isfinite(*loss)) continue;
      are_equal = are_equal && (!first || *first == *loss);
      first = loss;
      ++count;
    }
    if (!losses_.tell(are_equal && count > 1, kEqualLosses, findings != nullptr)) return;
    Finding& finding = findings->emplace_back(finding_at(step, "", ""));
    finding.statistic = "mean";
    finding.observed = *first;
    finding.message = fmt::format(
        "The loss is the same on all workers for {} steps up to step {}: they see the same data.",
        kEqualLosses, step.step);
  }

  std::optional<double> loss_of(const WorkerStep& worker) {
    for (const StatisticsRow& row : worker.record->rows) {
      if (loss_.selects(worker, row.tensor)) return row.statistics.mean;
    }
    return std::nullopt;
  }

  const std::int64_t interval_;
  const double tolerance_;
  std::unordered_map<std::string, std::string> groups_;  // worker -> its group
  std::size_t worker_count_ = 0;
  std::int64_t points_ = 0;
  bool is_compared_ = false;
  std::vector<Copy> copies_;
  NamedScalar norm_{"^gradient_norm/before_clipping$"};
  TensorSelector loss_{{"losses"}, {}};
  Persistence divergence_;
  Persistence norms_;
  Persistence losses_;
};

}  // namespace

const RuleDescriptor& rank_divergence_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Replicas of one model that are no longer equal.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kWeights,
      .advice = {"Replicas that differ average gradients of different models; what is saved at the "
                 "end is one of them.",
                 kCauses,
                 "Look at the first step and tensor that differ; repeat that step from the last "
                 "checkpoint, on other hardware if it does not repeat."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<RankDivergence>,
  };
  return kDescriptor;
}

}  // namespace tensortap
