#include "rules/scalar_rule.h"

#include <algorithm>
#include <cmath>

namespace tensortap {

NamedScalar::Known& NamedScalar::look_up(const WorkerStep& worker) {
  if (known_.size() <= worker.worker_index) known_.resize(worker.worker_index + 1);
  Known& known = known_[worker.worker_index];
  const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
  while (!known.tensor && known.seen < infos.size()) {
    if (regex_.search(infos[known.seen].name)) known.tensor = static_cast<TensorId>(known.seen);
    ++known.seen;
  }
  return known;
}

bool NamedScalar::is_known(const WorkerStep& worker) { return look_up(worker).tensor.has_value(); }

std::optional<double> NamedScalar::value(const WorkerStep& worker) {
  const StatisticsRow* row = this->row(worker);
  return row == nullptr ? std::nullopt : single_value(*row);
}

const StatisticsRow* NamedScalar::row(const WorkerStep& worker) {
  const Known& known = look_up(worker);
  if (!known.tensor) return nullptr;
  const std::vector<StatisticsRow>& rows = worker.record->rows;
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const StatisticsRow& one) {
    return one.tensor == *known.tensor;
  });
  return row == rows.end() ? nullptr : &*row;
}

Finding& ScalarPoint::add(std::string_view statistic, double observed, double threshold,
                          Severity severity, std::string message) const {
  Finding finding = finding_at(step, name, worker.worker);
  finding.statistic = statistic;
  finding.observed = observed;
  finding.threshold = threshold;
  finding.severity = severity;
  finding.message = std::move(message);
  findings->push_back(std::move(finding));
  return findings->back();
}

void ScalarRule::begin(const StepView&) { asked_ = nullptr; }

void ScalarRule::look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
                         std::vector<Finding>* findings) {
  if (asked_ != &worker) {
    asked_ = &worker;
    is_skipped_ = skipped_.is_skipped(worker);
  }
  if (is_skipped_ || !std::isfinite(row.statistics.mean)) return;
  point({step, worker, row, tensor_name(worker, row), row.statistics.mean, findings});
}

}  // namespace tensortap
