// Evaluates an expression step by step over one worker's records, with the memory that windows and
// "for N steps" need. Used by rules/builtin/expression.cc. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "rules/expression/expression.h"
#include "rules/rule.h"

namespace tensortap::expression {

// What came of the expression for one tensor at one step.
struct Verdict {
  const StatisticsRow* row = nullptr;  // the tensor it is about; null: no single one
  bool holds = false;                  // and has done so for the steps that "for" asks for
  // Of the first comparison that holds (of the first one when none does).
  double left = 0.0;
  double right = 0.0;
};

class Evaluator {
 public:
  explicit Evaluator(const Expression& expression);

  // `rows[i]` are the rows of selection i. Every step must come once, in order, judged or not.
  // Gives a verdict for each tensor for which the expression has a value. Throws
  // Error(kInvalidArgument) when two selections have several tensors each: nobody could say which
  // belong together.
  std::span<const Verdict> evaluate(const StepView& step, const WorkerStep& worker,
                                    std::span<const std::vector<const StatisticsRow*>> rows);

 private:
  using Value = std::optional<double>;
  using Rows = std::span<const std::vector<const StatisticsRow*>>;
  struct Point {
    std::int64_t step;
    double value;
  };
  // (node, mode, worker, tensor)
  using Key = std::tuple<int, Mode, std::uint32_t, TensorId>;

  bool bind(Rows rows);
  void judge();
  Value value_of(int index);
  Value leaf(const Node& node) const;
  Value binary(const Node& node);
  Value across(const Node& node);
  Value window(int index);
  Key key_of(int index) const;

  const Expression& expression_;
  std::optional<std::size_t> varying_;       // the selection with several tensors at this step
  std::vector<const StatisticsRow*> bound_;  // [selection]
  Rows rows_;
  const StepView* step_ = nullptr;
  const WorkerStep* worker_ = nullptr;
  std::map<Key, std::deque<Point>> windows_;
  std::map<Key, std::int64_t> held_;   // steps in a row
  std::optional<Verdict> comparison_;  // what the verdict will quote
  std::vector<Verdict> verdicts_;
  std::vector<double> scratch_;
};

}  // namespace tensortap::expression
