// What rules over scalars share: which one-element tensors of which steps they look at, and that a
// step which a loss scaler skipped is no point. Beside it, a way to ask for a named scalar of the
// same step. Used by rules/builtin. Not thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "rules/tensor_rule.h"

namespace tensortap {

// The first tensor of a worker whose name a regex matches, mostly a scalar. Remembers its id.
class NamedScalar {
 public:
  explicit NamedScalar(std::string_view regex) : regex_(regex) {}
  // Its value at this step; nothing when it was not recorded, or has several elements.
  std::optional<double> value(const WorkerStep& worker);
  const StatisticsRow* row(const WorkerStep& worker);
  // Whether the worker has ever recorded it.
  bool is_known(const WorkerStep& worker);

 private:
  struct Known {
    std::size_t seen = 0;  // names of the dictionary that were looked at
    std::optional<TensorId> tensor;
  };
  Known& look_up(const WorkerStep& worker);
  Regex regex_;
  std::vector<Known> known_;  // [worker_index]
};

// Whether the optimizer's step was left out at this step because of an overflow.
class SkippedSteps {
 public:
  bool is_skipped(const WorkerStep& worker) { return scalar_.value(worker).value_or(0.0) != 0.0; }

 private:
  NamedScalar scalar_{"^(scalar/)?skipped_step$"};
};

struct ScalarPoint {
  const StepView& step;
  const WorkerStep& worker;
  const StatisticsRow& row;
  const std::string& name;
  double value = 0.0;              // finite
  std::vector<Finding>* findings;  // null at a step that is only remembered, not judged

  bool is_judged() const { return findings != nullptr; }
  // Adds a finding about this scalar at this step.
  Finding& add(std::string_view statistic, double observed, double threshold, Severity severity,
               std::string message) const;
};

class ScalarRule : public TensorRule {
 public:
  explicit ScalarRule(RuleScope scope) : TensorRule(std::move(scope)) {}

 protected:
  // One scalar at one step. A loss with several elements (one a sample) counts as their mean.
  virtual void point(const ScalarPoint& point) = 0;

  void begin(const StepView& step) override;
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) final;

 private:
  SkippedSteps skipped_;
  const WorkerStep* asked_ = nullptr;  // the worker that is_skipped_ tells of
  bool is_skipped_ = false;
};

}  // namespace tensortap
