#include "rules/tensor_rule.h"

#include <algorithm>
#include <utility>

namespace tensortap {

TensorRule::TensorRule(RuleScope scope)
    : is_training_only_(scope.is_training_only),
      policy_(scope.policy),
      selector_(std::move(scope.collections), std::move(scope.regexes)) {}

void TensorRule::walk(const StepView& step, std::vector<Finding>* findings) {
  if (is_training_only_ && step.mode != Mode::kTrain && step.mode != Mode::kGlobal) return;
  const std::uint64_t valueless_before = coverage_.valueless_tensor_steps;
  std::uint64_t count = 0;
  begin(step);
  for (const WorkerStep& worker : judged_workers(step, policy_)) {
    for (const StatisticsRow* row : selected_rows(worker)) {
      ++count;
      look_at(step, worker, *row, findings);
    }
  }
  end(step, findings);
  if (findings == nullptr) return;
  const std::uint64_t judged = count - (coverage_.valueless_tensor_steps - valueless_before);
  coverage_.checked_tensor_steps += judged;
  ++(judged > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
}

std::span<const StatisticsRow* const> TensorRule::selected_rows(const WorkerStep& worker) {
  selected_.clear();
  for (const StatisticsRow& row : worker.record->rows) {
    if (selector_.selects(worker, row.tensor)) selected_.push_back(&row);
  }
  const auto by_id = [](const StatisticsRow* a, const StatisticsRow* b) {
    return a->tensor < b->tensor;
  };
  if (!std::is_sorted(selected_.begin(), selected_.end(), by_id)) {
    std::sort(selected_.begin(), selected_.end(), by_id);
  }
  return selected_;
}

Coverage TensorRule::coverage() const {
  Coverage coverage = coverage_;
  coverage.matched_tensors = selector_.matched_tensors();
  return coverage;
}

const std::string& tensor_name(const WorkerStep& worker, const StatisticsRow& row) {
  return worker.dictionary->tensors[row.tensor].name;
}

const Layout& layout_of(const WorkerStep& worker, const StatisticsRow& row) {
  return worker.dictionary->layouts[row.layout];
}

}  // namespace tensortap
