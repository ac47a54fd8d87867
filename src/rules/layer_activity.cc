#include "rules/layer_activity.h"

#include <algorithm>
#include <cmath>

namespace tensortap {
namespace {

bool is_active(double x, const ActiveRange& range) {
  return x > range.low && (x < range.high || std::isinf(range.high));
}

struct Units {
  std::uint64_t count = 1;
  std::uint64_t stride = 1;  // elements between one unit and the next
};

// The unit of element i is i / stride % count.
Units units_of(const std::vector<std::int64_t>& shape, UnitKind kind) {
  Units units;
  if (shape.size() < 2) return units;
  if (kind == UnitKind::kLast) {
    units.count = static_cast<std::uint64_t>(shape.back());
    return units;
  }
  std::uint64_t of_sample = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    of_sample *= static_cast<std::uint64_t>(shape[axis]);
  }
  if (kind == UnitKind::kElement) {
    units.count = of_sample;
  } else {
    units.count = static_cast<std::uint64_t>(shape[1]);
    units.stride = units.count == 0 ? 1 : of_sample / units.count;
  }
  return units;
}

void count_units(Activity& activity, const TensorValues& values, const Units& units,
                 const ActiveRange& range, bool drops_nan) {
  activity.active.assign(units.count, 0);
  activity.samples.assign(units.count, 0);
  for (std::size_t i = 0; i < values.elements.size(); ++i) {
    const std::size_t unit = i / units.stride % units.count;
    if (drops_nan && std::isnan(values.elements[i])) continue;
    ++activity.samples[unit];
    activity.active[unit] += is_active(values.elements[i], range) ? 1 : 0;
  }
}

// Active elements among those of the histogram's buckets.
Activity::Limits limits_of(const Histogram& histogram, const ActiveRange& range) {
  Activity::Limits limits;
  for (int bucket = 0; bucket < Histogram::kBucketCount; ++bucket) {
    const std::uint64_t count = histogram.counts[static_cast<std::size_t>(bucket)];
    if (count == 0) continue;
    // Positive: lower <= x < upper, but the innermost holds no zero; negative: lower < x <= upper.
    const bool is_positive = bucket >= Histogram::kBucketsPerSign;
    const double lower = histogram.lower(bucket);
    const double upper = histogram.upper(bucket);
    if (upper <= range.low || lower >= range.high) continue;
    const bool is_above = is_positive && lower != 0.0 ? lower > range.low : lower >= range.low;
    const bool is_below = is_positive ? upper <= range.high : upper < range.high;
    if (is_above && is_below) limits.least += count;
    limits.most += count;
  }
  return limits;
}

std::optional<Activity::Limits> limits_of(const StatisticsRow& row, const ActiveRange& range,
                                          bool drops_nan) {
  const Statistics& s = row.statistics;
  if (drops_nan && s.nan_count > 0) return std::nullopt;
  const std::uint64_t finite = s.finite_count();
  Activity::Limits limits;
  if (finite == 0 || s.max <= range.low || s.min >= range.high) {
    limits = {0, 0};
  } else if (s.min > range.low && s.max < range.high) {
    limits = {finite, finite};
  } else {
    const std::uint64_t zeros = is_active(0.0, range) ? s.zero_count : 0;
    if (row.has_histogram) {
      limits = limits_of(row.histogram, range);
    } else if (range.low == 0.0 && s.min >= 0.0 && s.max < range.high) {
      limits = {finite - s.zero_count, finite - s.zero_count};
    } else {
      limits = {0, finite - s.zero_count};
    }
    limits.least += zeros;
    limits.most += zeros;
  }
  const std::uint64_t infinite = std::isinf(range.high) ? s.positive_inf_count : 0;
  return Activity::Limits{limits.least + infinite, limits.most + infinite};
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Activity LayerActivityRule::measure(const WorkerStep& worker, const StatisticsRow& row,
                                    const ActiveRange& range) const {
  const Units units = units_of(layout_of(worker, row).shape, options_.unit_kind);
  Activity activity;
  activity.unit_count = units.count;
  activity.sample_count = row.statistics.count / units.count;
  if (const std::optional<TensorValues> values = values_of(worker, row)) {
    count_units(activity, *values, units, range, options_.drops_nan);
  } else {
    activity.limits = limits_of(row, range, options_.drops_nan);
  }
  return activity;
}

void LayerActivityRule::look_at(const StepView& step, const WorkerStep& worker,
                                const StatisticsRow& row, std::vector<Finding>* findings) {
  if (row.statistics.count == 0) return;
  const std::optional<ActiveRange> range = active_range(worker, row);
  if (!range || (findings == nullptr && options_.window == 1)) return;
  std::deque<Activity>& past = activities_.at(worker, row.tensor, step.mode);
  past.push_back(measure(worker, row, *range));
  if (past.front().unit_count != past.back().unit_count) {
    past.erase(past.begin(), past.end() - 1);
  }
  if (past.size() > options_.window) past.pop_front();
  if (findings == nullptr || past.size() < options_.window) return;
  const std::optional<Verdict> verdict = judge(past);
  if (!verdict) {
    note_missing_values();
  } else if (verdict->inactive_percent > options_.layer_percent) {
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.observed = verdict->inactive_percent;
    finding.threshold = options_.layer_percent;
    describe(finding, *verdict);
    findings->push_back(std::move(finding));
  }
}

std::optional<LayerActivityRule::Verdict> LayerActivityRule::judge(
    const std::deque<Activity>& past) const {
  if (std::all_of(past.begin(), past.end(), [](const Activity& a) { return !a.active.empty(); })) {
    return judge_units(past);
  }
  Verdict verdict;
  verdict.unit_count = past.back().unit_count;
  verdict.is_exact = false;
  Activity::Limits active;
  for (const Activity& activity : past) {
    Activity::Limits one;
    if (activity.limits) {
      one = *activity.limits;
    } else if (!activity.active.empty()) {
      for (const std::uint32_t count : activity.active) one.least += count;
      one.most = one.least;
    } else {
      return std::nullopt;
    }
    active.least += one.least;
    active.most += one.most;
    verdict.sample_count += activity.sample_count;
  }
  // A unit with fewer active samples than `needed` is inactive.
  const auto needed = static_cast<std::uint64_t>(
      std::ceil(static_cast<double>(verdict.sample_count) * options_.inactivity_percent / 100.0));
  if (needed == 0) return verdict;
  const std::uint64_t all = verdict.unit_count * verdict.sample_count;
  const std::uint64_t most_alive = std::min(verdict.unit_count, active.most / needed);
  const std::uint64_t most_inactive =
      std::min(verdict.unit_count, (all - active.least) / (verdict.sample_count - needed + 1));
  verdict.inactive_percent = percent(verdict.unit_count - most_alive, verdict.unit_count);
  const bool is_sure = verdict.inactive_percent > options_.layer_percent ||
                       percent(most_inactive, verdict.unit_count) <= options_.layer_percent;
  return is_sure ? std::optional(verdict) : std::nullopt;
}

LayerActivityRule::Verdict LayerActivityRule::judge_units(const std::deque<Activity>& past) const {
  Verdict verdict;
  verdict.unit_count = past.back().unit_count;
  for (const Activity& activity : past) verdict.sample_count += activity.sample_count;
  std::uint64_t inactive = 0;
  for (std::size_t unit = 0; unit < verdict.unit_count; ++unit) {
    std::uint64_t active = 0;
    std::uint64_t samples = 0;
    for (const Activity& activity : past) {
      active += activity.active[unit];
      samples += activity.samples[unit];
    }
    if (samples == 0 || percent(active, samples) < options_.inactivity_percent) ++inactive;
  }
  verdict.inactive_percent = percent(inactive, verdict.unit_count);
  return verdict;
}

}  // namespace tensortap
