// What rules over losses and metrics share. Finds the one-element
// tensors that are asked for, brings several workers' values of a step together, and hands them
// over in the order of their names. Used by rules/builtin. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rules/rule.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

namespace tensortap {

struct LossScope {
  std::vector<std::string> collections = {};
  std::vector<std::string> regexes = {};
  // kMean: one series a name; kAny: one for each worker; kFirst: the first worker that has it.
  WorkerPolicy policy = WorkerPolicy::kMean;
  bool skips_rising = false;  // leaves out metrics that are meant to rise
};

struct LossValue {
  std::size_t id = 0;  // of its series, dense from 0: what a rule keeps its state by
  const std::string& name;
  std::string_view worker;  // "" when it is the mean of several
  double value = 0.0;       // may be NaN or infinite
};

class LossRule : public Rule {
 public:
  explicit LossRule(LossScope scope);

  void check(const StepView& step, std::vector<Finding>& findings) final { walk(step, &findings); }
  void observe(const StepView& step) final { walk(step, nullptr); }
  Coverage coverage() const final;
  std::string selection() const override { return selector_.description(); }
  std::vector<std::string> wanted_collections() const override { return selector_.collections(); }

 protected:
  // Whether steps of this mode are looked at; others do not count as skipped.
  virtual bool wants(Mode) const { return true; }
  // `findings` is null at a step that is only remembered, not judged.
  virtual void begin(const StepView&, std::vector<Finding>*) {}
  virtual void take(const StepView& step, const LossValue& loss,
                    std::vector<Finding>* findings) = 0;
  virtual void end(const StepView&, std::vector<Finding>*) {}

 private:
  struct OfStep {
    double sum = 0.0;
    std::uint32_t count = 0;  // of the current step
    std::string_view worker;
  };
  using Key = std::pair<std::string, std::string>;  // name, worker ("" when shared)

  void walk(const StepView& step, std::vector<Finding>* findings);
  std::uint64_t gather(const WorkerStep& worker);
  std::int32_t series_of(const WorkerStep& worker, const StatisticsRow& row);
  std::int32_t find_or_add(const WorkerStep& worker, const StatisticsRow& row);

  const WorkerPolicy policy_;
  const bool skips_rising_;
  TensorSelector selector_;
  Coverage coverage_;
  std::map<std::string, int, std::less<>> names_;
  std::map<Key, std::size_t> ids_;
  std::vector<OfStep> series_;                      // [id]
  std::vector<const Key*> keys_;                    // [id]
  std::vector<std::vector<std::int32_t>> indices_;  // [worker_index][tensor] -> id
  std::vector<std::size_t> touched_;                // in the current step
};

// What a name says of a metric that a framework saves for several data sets at once.
struct MetricName {
  enum class DataSet { kUnknown, kTraining, kValidation };
  DataSet data_set = DataSet::kUnknown;
  std::string metric;
};
// "train-rmse", "scalar/val_loss": up to the first of - _ / stands the data set. Without one that
// is known, the whole name is the metric.
MetricName parse_metric_name(std::string_view name);

// "validation-auc", "val_accuracy", "train-map@5": by the last word that is neither a number nor an
// aggregate.
bool is_meant_to_rise(std::string_view metric);

}  // namespace tensortap
