// TreeDepth: boosted trees that grow deeper than wanted.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/shared_parameters.h"
#include "rules/tensor_selector.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "TreeDepth";
constexpr std::string_view kNodes = "trees/Node";
constexpr std::array<std::string_view, 2> kMethods = {"links", "node_id"};

constexpr std::string_view kDoc =
    R"(Measures the depth of the trees of a boosting round, from the columns that the XGBoost hook
records: `trees/Node`, and `trees/Yes` and `trees/No` with the numbers of each node's children (NaN or
negative at a leaf), and `trees/Tree` when a round has several trees. Fires when a tree is deeper than
`depth`; a lone leaf has depth 0.

The depth is that of the longest path from the root (`method` links). Where the links are missing, and
with `method` node_id, it is what SageMaker computes: the logarithm to base 2 of the largest node
number plus 1, rounded down. That is the depth of a tree that is numbered level by level, and too much
for one that was pruned or grown leaf by leaf.

Raw values are needed. Training steps only: steps of mode TRAIN, or GLOBAL where the script sets no
mode.

Source: SageMaker Debugger's rule of that name; `method` is an addition.)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"depth", ParameterType::kFloat, "4", "Depth above which the rule fires.", 0.0, 1e308, true},
    {"method", ParameterType::kString, "links", "How the depth is measured: links or node_id."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 1> kCollections = {"trees"};

constexpr std::array<std::string_view, 3> kCauses = {
    "a max_depth that is large or not set",
    "leaf-wise growth without a limit on the leaves",
    "min_child_weight and gamma that let every split pass",
};

using Column = std::optional<std::vector<double>>;

struct Columns {
  std::vector<double> nodes;
  Column yes;
  Column no;
  Column trees;
};

struct Deepest {
  std::int64_t depth = 0;
  std::int64_t tree = 0;
};

std::int64_t depth_by_number(double largest_node) {
  return static_cast<std::int64_t>(std::floor(std::log2(largest_node + 1.0)));
}

// Of the rows of one tree. Stops at as many levels as there are nodes: links may be a circle.
std::int64_t depth_by_links(const Columns& columns, const std::vector<std::size_t>& rows) {
  std::map<std::int64_t, std::size_t> row_of;
  for (const std::size_t row : rows) {
    row_of.emplace(static_cast<std::int64_t>(columns.nodes[row]), row);
  }
  std::vector<std::int64_t> level = {0};
  std::int64_t depth = 0;
  std::size_t visited = 0;
  while (true) {
    std::vector<std::int64_t> next;
    for (const std::int64_t node : level) {
      const auto found = row_of.find(node);
      if (found == row_of.end()) continue;
      for (const Column* children : {&columns.yes, &columns.no}) {
        const double child = (**children)[found->second];
        if (child >= 0.0) next.push_back(static_cast<std::int64_t>(child));
      }
    }
    visited += next.size();
    if (next.empty() || visited > rows.size()) return depth;
    ++depth;
    level = std::move(next);
  }
}

class TreeDepth : public Rule {
 public:
  explicit TreeDepth(const Parameters& parameters)
      : depth_(parameters.get_float("depth")),
        is_by_links_(choice_of(kName, parameters, "method", kMethods) == 0),
        policy_(worker_policy_of(kName, parameters)),
        selector_({}, {"^trees/Node$"}) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    if (step.mode != Mode::kTrain && step.mode != Mode::kGlobal) return;
    std::uint64_t count = 0;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      for (const StatisticsRow& row : worker.record->rows) {
        if (!selector_.selects(worker, row.tensor) || row.statistics.count == 0) continue;
        const std::optional<Columns> columns = columns_of(worker, row);
        if (!columns) {
          ++coverage_.valueless_tensor_steps;
          continue;
        }
        ++count;
        judge(step, worker, deepest_of(*columns), findings);
      }
    }
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = selector_.matched_tensors();
    return coverage;
  }
  std::string selection() const override { return fmt::format("tensor '{}'", kNodes); }
  std::vector<std::string> wanted_collections() const override { return {"trees"}; }

 private:
  static Column column(const WorkerStep& worker, std::string_view name, std::size_t size) {
    for (const StatisticsRow& row : worker.record->rows) {
      if (tensor_name(worker, row) != name) continue;
      std::optional<TensorValues> values = values_of(worker, row);
      if (values && values->elements.size() == size) return std::move(values->elements);
    }
    return std::nullopt;
  }

  static std::optional<Columns> columns_of(const WorkerStep& worker, const StatisticsRow& nodes) {
    std::optional<TensorValues> values = values_of(worker, nodes);
    if (!values) return std::nullopt;
    Columns columns;
    columns.nodes = std::move(values->elements);
    const std::size_t size = columns.nodes.size();
    columns.yes = column(worker, "trees/Yes", size);
    columns.no = column(worker, "trees/No", size);
    columns.trees = column(worker, "trees/Tree", size);
    return columns;
  }

  Deepest deepest_of(const Columns& columns) const {
    std::map<std::int64_t, std::vector<std::size_t>> rows_of_tree;
    for (std::size_t row = 0; row < columns.nodes.size(); ++row) {
      const double tree = columns.trees ? (*columns.trees)[row] : 0.0;
      if (!std::isfinite(tree) || !(columns.nodes[row] >= 0.0)) continue;
      rows_of_tree[static_cast<std::int64_t>(tree)].push_back(row);
    }
    Deepest deepest;
    for (const auto& [tree, rows] : rows_of_tree) {
      double largest = 0.0;
      for (const std::size_t row : rows) largest = std::max(largest, columns.nodes[row]);
      const bool has_links = is_by_links_ && columns.yes && columns.no;
      const std::int64_t depth =
          has_links ? depth_by_links(columns, rows) : depth_by_number(largest);
      if (depth > deepest.depth) deepest = {depth, tree};
    }
    return deepest;
  }

  void judge(const StepView& step, const WorkerStep& worker, const Deepest& deepest,
             std::vector<Finding>& findings) const {
    if (static_cast<double>(deepest.depth) <= depth_) return;
    Finding finding = finding_at(step, kNodes, worker.worker);
    finding.statistic = "tree_depth";
    finding.observed = static_cast<double>(deepest.depth);
    finding.threshold = depth_;
    finding.message = fmt::format("Tree {} of step {} is {} levels deep, more than {:g}.",
                                  deepest.tree, finding.step, deepest.depth, depth_);
    findings.push_back(std::move(finding));
  }

  const double depth_;
  const bool is_by_links_;
  const WorkerPolicy policy_;
  TensorSelector selector_;
  Coverage coverage_;
};

}  // namespace

const RuleDescriptor& tree_depth_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Boosted trees that grow deeper than wanted.",
      .doc = kDoc,
      .family = RuleFamily::kTree,
      .stage = Stage::kWeights,
      .advice = {"Deep trees learn their training data by heart and are slow to evaluate.", kCauses,
                 "Set max_depth (or max_leaves), or raise min_child_weight and gamma; compare the "
                 "validation metric."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<TreeDepth>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
