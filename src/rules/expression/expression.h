// A condition over recorded tensors as a person writes it in a configuration:
//
//   abs_mean(gradients) > 10 for 3 steps
//   loss > 1.2 * min(loss, 100 steps)
//   max(weights) / p50(weights) > 1e3
//
// Parsed into a tree of nodes, which evaluator.h evaluates. Nothing else is ever evaluated. The
// grammar stands in docs/expressions.md and, as code, in parser.cc. Plain data, immutable after
// parsing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/statistics.h"

namespace tensortap::expression {

enum class NodeKind : std::uint8_t {
  kNumber,     // number
  kStatistic,  // statistic of selection
  kQuantile,   // number (0 to 1) of selection
  kValue,      // of the one element of selection
  kWindow,     // function over the last `steps` steps of children[0]
  kAcross,     // function over all tensors of the selection in children[0]
  kFunction,   // function of children
  kNegate,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kAnd,
  kOr,
  kNot,
};

enum class Function : std::uint8_t {
  // of numbers
  kAbs,
  kSqrt,
  kLog,
  kExp,
  // of a window, and of tensors
  kMin,
  kMax,
  kMean,
  kMedian,
  kSum,
  kStd,
};

// Which tensors a name in an expression stands for.
struct Selection {
  std::string text;       // as written
  bool is_regex = false;  // it stood in quotes
  bool operator==(const Selection&) const = default;
};

inline constexpr std::size_t kMaxSelections = 64;

struct Node {
  NodeKind kind = NodeKind::kNumber;
  double number = 0.0;
  StatisticId statistic = StatisticId::kMean;
  Function function = Function::kAbs;
  std::size_t selection = 0;  // index, of nodes that name tensors
  // Bits of the selections whose tensor must be known for the node to have a value.
  std::uint64_t needs = 0;
  std::int64_t steps = 0;
  std::vector<int> children = {};  // indices of nodes, always smaller than the node's own
};

struct Expression {
  std::string text;
  std::vector<Node> nodes;  // the root is the last one
  std::vector<Selection> selections;
  std::int64_t consecutive = 1;  // "for N steps"

  const Node& root() const { return nodes.back(); }
  const Node& child(const Node& node, std::size_t i = 0) const {
    return nodes[static_cast<std::size_t>(node.children[i])];
  }
};

bool is_comparison(NodeKind kind);

// Throws Error(kInvalidArgument): what was expected at which character.
Expression parse(std::string_view text);

// The names that may stand before a parenthesis, for messages and documentation.
std::vector<std::string> function_names();

}  // namespace tensortap::expression
