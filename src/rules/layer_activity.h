// How many units of a layer are hardly ever active over a batch: what DeadRelu and
// SaturatedActivation have in common. Axis 0 of a tensor is the samples. With raw values the count
// is exact; statistics give limits for it, since a unit that is active takes its share of the
// active elements. Used by rules/builtin. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "rules/series.h"
#include "rules/tensor_rule.h"
#include "rules/values.h"

namespace tensortap {

// A value is active inside (low, high); a high of infinity takes in infinity.
struct ActiveRange {
  double low = 0.0;
  double high = 0.0;
};

// The active elements of one step of one layer.
struct Activity {
  std::uint64_t unit_count = 0;
  std::uint64_t sample_count = 0;  // a unit
  // Of each unit, when the values are known.
  std::vector<std::uint32_t> active;
  std::vector<std::uint32_t> samples;
  // Of the layer, when they are not: between these. Nothing when even that cannot be told.
  struct Limits {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
  };
  std::optional<Limits> limits;
};

// What is one unit: each coordinate of a sample, each index of axis 1 (channels), or each of the
// last axis.
enum class UnitKind : std::uint8_t { kElement, kChannel, kLast };

struct ActivityOptions {
  double inactivity_percent = 1.0;  // a unit active in less than this share is inactive
  double layer_percent = 50.0;      // a layer with more inactive units than this is told
  std::size_t window = 1;           // saved steps that are pooled
  UnitKind unit_kind = UnitKind::kElement;
  bool drops_nan = false;  // a NaN is no sample; else it is an inactive one
};

class LayerActivityRule : public TensorRule {
 public:
  LayerActivityRule(RuleScope scope, const ActivityOptions& options)
      : TensorRule(std::move(scope)), options_(options) {}

 protected:
  // Nothing: the layer is left out.
  virtual std::optional<ActiveRange> active_range(const WorkerStep& worker,
                                                  const StatisticsRow& row) = 0;
  // Inactive units in percent, at least; the threshold and the place are filled in.
  struct Verdict {
    double inactive_percent = 0.0;
    bool is_exact = true;
    std::uint64_t unit_count = 0;
    std::uint64_t sample_count = 0;
  };
  virtual void describe(Finding& finding, const Verdict& verdict) const = 0;
  const ActivityOptions& options() const { return options_; }

  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) final;

 private:
  Activity measure(const WorkerStep& worker, const StatisticsRow& row,
                   const ActiveRange& range) const;
  // Nothing: it cannot be told.
  std::optional<Verdict> judge(const std::deque<Activity>& past) const;
  Verdict judge_units(const std::deque<Activity>& past) const;

  const ActivityOptions options_;
  PerSeries<std::deque<Activity>> activities_;
};

}  // namespace tensortap
