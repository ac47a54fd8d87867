#include "rules/expression/evaluator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/error.h"
#include "tensor/quantile.h"

namespace tensortap::expression {
namespace {

constexpr TensorId kNoTensor = std::numeric_limits<TensorId>::max();

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2.0;
}

// Of at least one value. Reorders them.
double fold(Function function, std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const double mean = sum / static_cast<double>(values.size());
  switch (function) {
    case Function::kMin:
      return *std::min_element(values.begin(), values.end());
    case Function::kMax:
      return *std::max_element(values.begin(), values.end());
    case Function::kMedian:
      return median(values);
    case Function::kSum:
      return sum;
    case Function::kStd: {
      double squares = 0.0;
      for (const double value : values) squares += (value - mean) * (value - mean);
      return std::sqrt(squares / static_cast<double>(values.size()));
    }
    default:
      return mean;
  }
}

double apply(Function function, double x) {
  switch (function) {
    case Function::kSqrt:
      return std::sqrt(x);
    case Function::kLog:
      return std::log(x);
    case Function::kExp:
      return std::exp(x);
    default:
      return std::abs(x);
  }
}

double calculate(NodeKind kind, double a, double b) {
  switch (kind) {
    case NodeKind::kAdd:
      return a + b;
    case NodeKind::kSubtract:
      return a - b;
    case NodeKind::kMultiply:
      return a * b;
    default:
      return a / b;
  }
}

bool compare(NodeKind kind, double a, double b) {
  switch (kind) {
    case NodeKind::kLess:
      return a < b;
    case NodeKind::kLessEqual:
      return a <= b;
    case NodeKind::kGreater:
      return a > b;
    case NodeKind::kGreaterEqual:
      return a >= b;
    case NodeKind::kEqual:
      return a == b;
    default:
      return a != b;
  }
}

}  // namespace

Evaluator::Evaluator(const Expression& expression)
    : expression_(expression), bound_(expression.selections.size(), nullptr) {}

std::span<const Verdict> Evaluator::evaluate(const StepView& step, const WorkerStep& worker,
                                             Rows rows) {
  step_ = &step;
  worker_ = &worker;
  rows_ = rows;
  verdicts_.clear();
  if (!bind(rows)) return verdicts_;
  if (!varying_) {
    judge();
    return verdicts_;
  }
  for (const StatisticsRow* row : rows[*varying_]) {
    bound_[*varying_] = row;
    judge();
  }
  return verdicts_;
}

// Decides which selection the verdicts run over. False when one has no tensor at this step.
bool Evaluator::bind(Rows rows) {
  varying_.reset();
  const std::uint64_t needs = expression_.root().needs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bound_[i] = nullptr;
    if ((needs >> i & 1) == 0) continue;
    if (rows[i].empty()) return false;
    bound_[i] = rows[i].front();
    if (rows[i].size() == 1) continue;
    if (varying_) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' and '{}' stand for several tensors each, which cannot be "
                      "paired; put one of them into max_of(…), mean_of(…) or the like",
                      expression_.selections[*varying_].text, expression_.selections[i].text));
    }
    varying_ = i;
  }
  return true;
}

void Evaluator::judge() {
  comparison_.reset();
  const int root = static_cast<int>(expression_.nodes.size() - 1);
  const Value value = value_of(root);
  if (!value) return;
  Verdict verdict = comparison_.value_or(Verdict{});
  const std::uint64_t needs = expression_.root().needs;
  if (varying_) {
    verdict.row = bound_[*varying_];
  } else if (std::has_single_bit(needs)) {
    verdict.row = bound_[static_cast<std::size_t>(std::countr_zero(needs))];
  }
  std::int64_t& held = held_[key_of(root)];
  held = *value != 0.0 ? held + 1 : 0;
  verdict.holds = held >= expression_.consecutive;
  verdicts_.push_back(verdict);
}

// Both sides of everything are always evaluated: windows must see every step.
Evaluator::Value Evaluator::value_of(int index) {
  const Node& node = expression_.nodes[static_cast<std::size_t>(index)];
  switch (node.kind) {
    case NodeKind::kNumber:
      return node.number;
    case NodeKind::kStatistic:
    case NodeKind::kQuantile:
    case NodeKind::kValue:
      return leaf(node);
    case NodeKind::kWindow:
      return window(index);
    case NodeKind::kAcross:
      return across(node);
    case NodeKind::kFunction:
    case NodeKind::kNegate:
    case NodeKind::kNot: {
      const Value child = value_of(node.children[0]);
      if (!child) return std::nullopt;
      if (node.kind == NodeKind::kNot) return *child == 0.0 ? 1.0 : 0.0;
      return node.kind == NodeKind::kNegate ? -*child : apply(node.function, *child);
    }
    default:
      return binary(node);
  }
}

Evaluator::Value Evaluator::leaf(const Node& node) const {
  const StatisticsRow& row = *bound_[node.selection];
  if (node.kind == NodeKind::kValue) return single_value(row);
  if (node.kind == NodeKind::kStatistic) return statistic_value(row.statistics, node.statistic);
  if (!row.has_histogram) return std::nullopt;
  return approximate_quantile(row.statistics, row.histogram, node.number);
}

Evaluator::Value Evaluator::binary(const Node& node) {
  const Value left = value_of(node.children[0]);
  const Value right = value_of(node.children[1]);
  if (node.kind == NodeKind::kAnd || node.kind == NodeKind::kOr) {
    const double decides = node.kind == NodeKind::kOr ? 1.0 : 0.0;
    if ((left && *left == decides) || (right && *right == decides)) return decides;
    return left && right ? Value(1.0 - decides) : std::nullopt;
  }
  if (!left || !right) return std::nullopt;
  if (!is_comparison(node.kind)) return calculate(node.kind, *left, *right);
  const bool holds = compare(node.kind, *left, *right);
  if (!comparison_ || (holds && !comparison_->holds)) {
    comparison_ = Verdict{nullptr, holds, *left, *right};
  }
  return holds ? 1.0 : 0.0;
}

Evaluator::Value Evaluator::across(const Node& node) {
  std::vector<double> values;
  const StatisticsRow* const outer = bound_[node.selection];
  const std::optional<std::size_t> outer_varying = std::exchange(varying_, node.selection);
  for (const StatisticsRow* row : rows_[node.selection]) {
    bound_[node.selection] = row;
    if (const Value value = value_of(node.children[0])) values.push_back(*value);
  }
  bound_[node.selection] = outer;
  varying_ = outer_varying;
  if (values.empty()) return std::nullopt;
  return fold(node.function, values);
}

// Over the values of the steps before this one that lie in the window; this one is added after.
Evaluator::Value Evaluator::window(int index) {
  const Node& node = expression_.nodes[static_cast<std::size_t>(index)];
  const Value now = value_of(node.children[0]);
  std::deque<Point>& points = windows_[key_of(index)];
  const std::int64_t step = step_->mode_step;
  if (!points.empty() && points.back().step > step) points.clear();  // the count began anew
  const bool is_repeated = !points.empty() && points.back().step == step;
  while (!points.empty() && points.front().step < step - node.steps) points.pop_front();
  scratch_.clear();
  for (const Point& point : points) {
    if (point.step < step) scratch_.push_back(point.value);
  }
  if (now && !std::isnan(*now) && !is_repeated) points.push_back({step, *now});
  if (scratch_.empty()) return std::nullopt;
  return fold(node.function, scratch_);
}

Evaluator::Key Evaluator::key_of(int index) const {
  const std::uint64_t needs = expression_.nodes[static_cast<std::size_t>(index)].needs;
  TensorId tensor = kNoTensor;
  if (varying_ && (needs >> *varying_ & 1) != 0) {
    tensor = bound_[*varying_]->tensor;
  } else if (needs != 0) {
    tensor = bound_[static_cast<std::size_t>(std::countr_zero(needs))]->tensor;
  }
  return {index, step_->mode, worker_->worker_index, tensor};
}

}  // namespace tensortap::expression
