// What most built-in rules share: which tensors of which steps and workers they look at, and the
// count of what they saw. A rule derives from it and says what one row means. Used by
// rules/builtin. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

namespace tensortap {

// What a rule looks at. No collections and no regexes: every tensor.
struct RuleScope {
  std::vector<std::string> collections = {};
  std::vector<std::string> regexes = {};
  // Only steps of mode TRAIN, or GLOBAL where the script sets no mode.
  bool is_training_only = true;
  WorkerPolicy policy = WorkerPolicy::kAny;
};

class TensorRule : public Rule {
 public:
  explicit TensorRule(RuleScope scope);

  // Calls begin, look_at for each selected row of each worker, and end. Rows come in the order in
  // which their tensors first appeared: a record's own order differs between a running process and
  // a trace.
  void check(const StepView& step, std::vector<Finding>& findings) final { walk(step, &findings); }
  void observe(const StepView& step) final { walk(step, nullptr); }
  Coverage coverage() const final;
  std::string selection() const override { return selector_.description(); }
  std::vector<std::string> wanted_collections() const override { return selector_.collections(); }

 protected:
  // `findings` is null at a step that is only remembered, not judged.
  virtual void begin(const StepView&) {}
  virtual void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                       std::vector<Finding>* findings) = 0;
  virtual void end(const StepView&, std::vector<Finding>*) {}

  // For a rule that has need of raw values, from look_at: the row had none, so it was not judged.
  // The status says so when this is so for all of them.
  void note_missing_values() { ++coverage_.valueless_tensor_steps; }

 private:
  void walk(const StepView& step, std::vector<Finding>* findings);
  std::span<const StatisticsRow* const> selected_rows(const WorkerStep& worker);

  const bool is_training_only_;
  const WorkerPolicy policy_;
  TensorSelector selector_;
  Coverage coverage_;
  std::vector<const StatisticsRow*> selected_;
};

// Name of a row's tensor.
const std::string& tensor_name(const WorkerStep& worker, const StatisticsRow& row);
const Layout& layout_of(const WorkerStep& worker, const StatisticsRow& row);

// State that a rule keeps for each worker's tensor.
template <typename T>
class PerTensor {
 public:
  T& at(const WorkerStep& worker, TensorId tensor) {
    if (states_.size() <= worker.worker_index) states_.resize(worker.worker_index + 1);
    std::vector<T>& states = states_[worker.worker_index];
    if (states.size() <= tensor) states.resize(tensor + 1);
    return states[tensor];
  }

 private:
  std::vector<std::vector<T>> states_;  // [worker_index][tensor]
};

}  // namespace tensortap
