// What rules over the machine share: they see the samples that a worker recorded as tensors
// system/<metric> one after the other, whatever the steps they came with. Used by rules/builtin.
// Not thread-safe.
#pragma once

#include <array>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/sample.h"
#include "rules/rule.h"
#include "rules/values.h"

namespace tensortap {

// One sample of one worker. Percentages outside of 0 to 100 are NaN, as what is not known is.
struct MachineSample {
  double time_s = std::numeric_limits<double>::quiet_NaN();  // since the Unix epoch
  std::array<std::span<const double>, kMetricCount> values;  // empty: not recorded
  std::span<const double> of(Metric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
};

// Of the values that are known; NaN when none is.
double mean_of_known(std::span<const double> values);

// A worker at a step, and where findings go.
struct MachinePoint {
  const StepView& step;
  const WorkerStep& worker;
  std::vector<Finding>* findings;  // null at a step that is only remembered, not judged

  bool is_judged() const { return findings != nullptr; }
  Finding& add(Metric metric, std::string_view statistic, double observed, double threshold,
               std::string message) const;
};

std::string_view metric_name(Metric metric);

// State of each worker.
template <typename T>
class PerWorker {
 public:
  T& at(const WorkerStep& worker) {
    while (states_.size() <= worker.worker_index) states_.emplace_back();
    return states_[worker.worker_index];
  }
  const std::vector<T>& all() const { return states_; }

 private:
  std::vector<T> states_;
};

// SageMaker's slices of time mean nothing here: a rule judges whenever samples come.
inline constexpr ParameterDescriptor kScanIntervalParameter = {
    "scan_interval_us",
    ParameterType::kInt,
    "60000000",
    "Accepted, without effect: samples are judged as they come.",
    0,
    1e308,
    true};

class SystemRule : public Rule {
 public:
  // `needed`: what the rule cannot judge without, all of it.
  explicit SystemRule(std::vector<Metric> needed) : needed_(std::move(needed)) {}

  // Calls see for each sample of each worker, then judge, and after all workers end.
  void check(const StepView& step, std::vector<Finding>& findings) final { walk(step, &findings); }
  void observe(const StepView& step) final { walk(step, nullptr); }
  Coverage coverage() const final;
  std::string selection() const override;
  std::vector<std::string> wanted_collections() const override { return {"system"}; }
  std::string not_applicable() const override;

 protected:
  virtual void see(const MachinePoint&, const MachineSample&) {}
  virtual void judge(const MachinePoint&) {}
  virtual void end(const StepView&, std::vector<Finding>*) {}

 private:
  static constexpr std::size_t kTime = kMetricCount;  // index of system/time
  static constexpr signed char kNotAsked = -2;
  static constexpr signed char kOther = -1;

  bool read(const WorkerStep& worker);  // into read_; false: no samples at this step
  signed char index_of(const WorkerStep& worker, TensorId tensor);
  bool has_all_needed() const;
  void walk(const StepView& step, std::vector<Finding>* findings);

  const std::vector<Metric> needed_;
  std::vector<std::vector<signed char>> known_;  // [worker_index][tensor]: index into read_
  std::array<TensorValues, kMetricCount + 1> read_;
  std::size_t sample_count_ = 0;
  std::set<std::size_t> seen_;  // indices of metrics
  Coverage coverage_;
};

}  // namespace tensortap
