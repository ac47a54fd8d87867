#include "rules/closeness.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tensortap {
namespace {

void take(Difference& difference, double old, double now, double scale,
          const Tolerance& tolerance) {
  const double distance = std::abs(old - now);
  difference.max_absolute = std::max(difference.max_absolute, distance);
  if (now != 0.0) {
    difference.max_relative = std::max(difference.max_relative, distance / std::abs(now));
  } else if (distance > 0.0) {
    difference.max_relative = HUGE_VAL;
  }
  if (!(distance <= tolerance.absolute + tolerance.relative * scale)) difference.is_close = false;
}

auto counts_of(const Statistics& s) {
  return std::tie(s.count, s.nan_count, s.positive_inf_count, s.negative_inf_count);
}

}  // namespace

Difference compare_elements(std::span<const double> old, std::span<const double> now,
                            const Tolerance& tolerance) {
  Difference difference;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (std::isfinite(old[i]) && std::isfinite(now[i])) {
      take(difference, old[i], now[i], std::abs(now[i]), tolerance);
    } else {
      const bool are_nan = std::isnan(old[i]) && std::isnan(now[i]);
      if (!(are_nan ? tolerance.equal_nan : old[i] == now[i])) difference.is_close = false;
    }
  }
  return difference;
}

Difference compare_statistics(const Statistics& old, const Statistics& now,
                              const Tolerance& tolerance) {
  Difference difference;
  difference.is_close = counts_of(old) == counts_of(now);
  if (now.nan_count > 0 && !tolerance.equal_nan) difference.is_close = false;
  if (old.finite_count() == 0 || now.finite_count() == 0) return difference;
  const double rms = statistic_value(now, StatisticId::kRms);
  take(difference, old.min, now.min, std::abs(now.min), tolerance);
  take(difference, old.max, now.max, std::abs(now.max), tolerance);
  take(difference, old.mean, now.mean, now.abs_mean, tolerance);
  take(difference, old.abs_min, now.abs_min, now.abs_min, tolerance);
  take(difference, old.abs_mean, now.abs_mean, now.abs_mean, tolerance);
  take(difference, std::sqrt(old.variance), std::sqrt(now.variance), rms, tolerance);
  return difference;
}

}  // namespace tensortap
