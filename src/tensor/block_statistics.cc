#include "tensor/block_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/block_kernels.h"

namespace tensortap::tensor {
namespace {

constexpr double kHalfUnderflow = 0x1p-25;  // half of float16's smallest number: rounds to 0
constexpr double kHalfOverflow = 65520.0;   // halfway to 2^16: rounds to infinity
// Below this share of the sum of squares, a difference of sums has lost too many digits: the block
// is read again, from the L1 cache, about its mean.
constexpr double kCancellation = 1.0 / 256.0;

template <class T>
constexpr std::size_t kBlockElements = kBlockBytes / sizeof(T);

// Chan, Golub, LeVeque 1979: the moments of two parts together, here with means of twice the
// digits.
void merge_moments(Moments& into, double into_n, const Moments& other, double other_n) {
  const double n = into_n + other_n;
  const double delta = (other.mean_high - into.mean_high) + (other.mean_low - into.mean_low);
  into.square_deviation += other.square_deviation + delta * delta * (into_n * (other_n / n));
  if (!std::isfinite(delta)) {  // means of opposite sign near the end of double
    into.mean_high = into.mean_high * (into_n / n) + other.mean_high * (other_n / n);
    into.mean_low = 0.0;
    return;
  }
  const double step = into.mean_low + delta * (other_n / n);
  const double high = into.mean_high + step;
  into.mean_low = step - (high - into.mean_high);
  into.mean_high = high;
}

Moments constant_moments(double value) { return {value, 0.0, 0.0}; }

bool cancels(double square_sum, double square_deviation) {
  return !(square_deviation >= square_sum * kCancellation) || !std::isfinite(square_sum);
}

Moments centered_moments(double pivot, double sum, double square_sum, double n) {
  // Differences that overflow make the variance infinite; the mean is right without them.
  if (!std::isfinite(square_sum)) return {pivot, 0.0, std::numeric_limits<double>::infinity()};
  const double off = sum / n;
  return {pivot, off, std::max(0.0, square_sum - sum * off)};
}

// Sums of x * 2^-64, for finite elements whose own sum is beyond double.
struct ScaledMeans {
  double mean;
  double abs_mean;
};
template <class T>
ScaledMeans scaled_means(const T* x, std::size_t n) {
  double sum = 0.0;
  double abs_sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double scaled = static_cast<double>(x[i]) * 0x1p-64;
    sum += scaled;
    abs_sum += std::abs(scaled);
  }
  const auto count = static_cast<double>(n);
  return {sum / count * 0x1p64, abs_sum / count * 0x1p64};
}

struct BlockMoments {
  Moments moments;
  Moments abs_moments;
};

template <class T>
BlockMoments block_moments(const T* x, std::size_t n, const BlockSums& sums) {
  const auto count = static_cast<double>(n);
  const bool is_nonnegative = sums.min >= 0.0;
  if (sums.min == sums.max) {
    return {constant_moments(sums.min), constant_moments(std::abs(sums.min))};
  }
  double mean = sums.sum / count;
  double abs_mean = sums.abs_sum / count;
  const double deviation = sums.square_sum - sums.sum * mean;
  const double abs_deviation = sums.square_sum - sums.abs_sum * abs_mean;
  if (!cancels(sums.square_sum, deviation) && !cancels(sums.square_sum, abs_deviation)) {
    return {{mean, 0.0, deviation}, {abs_mean, 0.0, abs_deviation}};
  }
  if (!std::isfinite(sums.abs_sum)) {
    const ScaledMeans means = scaled_means(x, n);
    mean = means.mean;
    abs_mean = means.abs_mean;
  }
  // Rounding may put a mean of nearly equal numbers outside of them.
  mean = std::clamp(mean, sums.min, sums.max);
  const CenteredSums about = center_block(x, n, mean, abs_mean);
  const Moments moments = centered_moments(mean, about.sum, about.square_sum, count);
  if (is_nonnegative) return {moments, moments};
  return {moments, centered_moments(abs_mean, about.abs_sum, about.abs_square_sum, count)};
}

// The window reaches down to subnormal numbers, whose top bits are no logarithm: counts the same
// numbers, exactly, in a higher place.
template <class T>
[[gnu::noinline]] void bin_tiny(const T* x, std::size_t n, BinExtent extent, Histogram& histogram) {
  alignas(64) T scaled[kBlockElements<T>];
  for (std::size_t i = 0; i < n; ++i) scaled[i] = x[i] * T{0x1p100};
  extent.abs_min *= 0x1p100;
  extent.abs_max *= 0x1p100;
  bin_block(scaled, n, histogram.top + 200, extent, histogram.counts.data());
}

template <class T>
void bin_finite(const T* x, std::size_t n, const BlockSums& sums, const BlockCounts& counts,
                bool is_first, Histogram& histogram) {
  BinExtent extent;
  extent.abs_min = sums.abs_min;
  extent.abs_max = std::max(-sums.min, sums.max);
  extent.has_negative = sums.min < 0.0 || counts.negative_zero != 0;
  extent.has_positive = sums.max > 0.0 || counts.zero != counts.negative_zero;
  if (extent.abs_max == 0.0) return;
  const int block_top = half_octave(extent.abs_max);
  if (is_first) {
    histogram.top = static_cast<std::int16_t>(block_top);
  } else if (block_top > histogram.top) {
    raise_top(histogram, block_top);
  }
  const int window_end = histogram.top - (Histogram::kBucketsPerSign - 1);
  constexpr int kSmallestNormal = 2 * (std::numeric_limits<T>::min_exponent - 1);
  if (window_end >= kSmallestNormal) {
    bin_block(x, n, histogram.top, extent, histogram.counts.data());
  } else {
    bin_tiny(x, n, extent, histogram);
  }
  histogram.counts[Histogram::kBucketsPerSign] -= counts.zero - counts.negative_zero;
  histogram.counts[Histogram::kBucketsPerSign - 1] -= counts.negative_zero;
}

template <class T>
void add_finite_block(const T* x, std::size_t n, const BlockSums& sums, double smallest_normal,
                      PartialStatistics& partial, Histogram* histogram) {
  CountNeeds needs;
  needs.zeros = sums.abs_min == 0.0;
  needs.underflows = sums.abs_min <= kHalfUnderflow;
  needs.subnormals = sums.abs_min < smallest_normal;
  needs.overflows = std::max(-sums.min, sums.max) >= kHalfOverflow;
  needs.smallest_normal = smallest_normal;
  BlockCounts counts = {0, 0, 0, 0, 0};
  if (needs.underflows || needs.subnormals || needs.overflows) counts = count_block(x, n, needs);
  if (histogram != nullptr) {
    const bool is_first = partial.finite == partial.zero;
    bin_finite(x, n, sums, counts, is_first, *histogram);
  }
  PartialStatistics block;
  block.finite = n;
  block.zero = counts.zero;
  block.subnormal = counts.subnormal;
  block.overflow = counts.overflow;
  block.underflow = counts.underflow;
  block.min = sums.min;
  block.max = sums.max;
  block.abs_min = sums.abs_min;
  const BlockMoments moments = block_moments(x, n, sums);
  block.moments = moments.moments;
  block.abs_moments = moments.abs_moments;
  merge(partial, block);
}

// Out of line: the buffer would cost every block its stack.
template <class T>
[[gnu::noinline]] void add_irregular_block(const T* x, std::size_t n, double smallest_normal,
                                           PartialStatistics& partial, Histogram* histogram) {
  alignas(64) T finite[kBlockElements<T> + kPaddingElements];
  const FiniteSplit split = split_finite(x, n, finite);
  partial.nan += split.nan;
  partial.positive_inf += split.positive_inf;
  partial.negative_inf += split.negative_inf;
  if (split.finite == 0) return;
  const BlockSums sums = sum_block(finite, split.finite);
  add_finite_block(finite, split.finite, sums, smallest_normal, partial, histogram);
}

template <class T>
void add_any_block(const T* x, std::size_t n, double smallest_normal, PartialStatistics& partial,
                   Histogram* histogram) {
  const BlockSums sums = sum_block(x, n);
  if (std::isfinite(sums.abs_sum)) {
    add_finite_block(x, n, sums, smallest_normal, partial, histogram);
  } else {
    add_irregular_block(x, n, smallest_normal, partial, histogram);
  }
}

}  // namespace

void add_block(const float* x, std::size_t n, double smallest_normal, PartialStatistics& partial,
               Histogram* histogram) {
  add_any_block(x, n, smallest_normal, partial, histogram);
}

void add_block(const double* x, std::size_t n, double smallest_normal, PartialStatistics& partial,
               Histogram* histogram) {
  add_any_block(x, n, smallest_normal, partial, histogram);
}

void merge(PartialStatistics& into, const PartialStatistics& other) {
  into.nan += other.nan;
  into.positive_inf += other.positive_inf;
  into.negative_inf += other.negative_inf;
  into.zero += other.zero;
  into.subnormal += other.subnormal;
  into.overflow += other.overflow;
  into.underflow += other.underflow;
  if (other.finite == 0) return;
  if (into.finite == 0) {
    into.min = other.min;
    into.max = other.max;
    into.abs_min = other.abs_min;
    into.moments = other.moments;
    into.abs_moments = other.abs_moments;
  } else {
    into.min = std::min(into.min, other.min);
    into.max = std::max(into.max, other.max);
    into.abs_min = std::min(into.abs_min, other.abs_min);
    const auto into_n = static_cast<double>(into.finite);
    const auto other_n = static_cast<double>(other.finite);
    merge_moments(into.moments, into_n, other.moments, other_n);
    merge_moments(into.abs_moments, into_n, other.abs_moments, other_n);
  }
  into.finite += other.finite;
}

Statistics finish(const PartialStatistics& partial) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Statistics s;
  s.count = partial.finite + partial.nan + partial.positive_inf + partial.negative_inf;
  s.nan_count = partial.nan;
  s.positive_inf_count = partial.positive_inf;
  s.negative_inf_count = partial.negative_inf;
  s.zero_count = partial.zero;
  s.subnormal_count = partial.subnormal;
  s.overflow_count = partial.overflow;
  s.underflow_count = partial.underflow;
  if (partial.finite == 0) {
    s.min = s.max = s.mean = s.variance = kNaN;
    s.abs_min = s.abs_mean = s.abs_variance = kNaN;
    return s;
  }
  const auto n = static_cast<double>(partial.finite);
  s.min = partial.min;
  s.max = partial.max;
  s.abs_min = partial.abs_min;
  s.mean = partial.moments.mean_high + partial.moments.mean_low;
  s.variance = partial.moments.square_deviation / n;
  s.abs_mean = partial.abs_moments.mean_high + partial.abs_moments.mean_low;
  s.abs_variance = partial.abs_moments.square_deviation / n;
  return s;
}

}  // namespace tensortap::tensor
