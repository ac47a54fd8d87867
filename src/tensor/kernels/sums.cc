// Sums, extremes and centred sums of a block: the pass that reads every tensor from memory.

#include <cstring>

#include "tensor/block_kernels.h"

// The order matters.
// clang-format off
#include "tensor/kernel_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/sums.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tensortap::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<DoubleTag>;

HWY_INLINE void add_sums(DoubleVector x, DoubleVector& sum, DoubleVector& abs_sum,
                         DoubleVector& square_sum) {
  sum = hn::Add(sum, x);
  abs_sum = hn::Add(abs_sum, hn::Abs(x));
  square_sum = hn::MulAdd(x, x, square_sum);
}

HWY_INLINE double total(DoubleVector a, DoubleVector b) {
  return hn::GetLane(hn::SumOfLanes(DoubleTag(), hn::Add(a, b)));
}

HWY_INLINE DoubleVector load_as_double(const float* x) {
  const hn::Rebind<float, DoubleTag> half;
  return hn::PromoteTo(DoubleTag(), hn::LoadU(half, x));
}
HWY_INLINE DoubleVector load_as_double(const double* x) { return hn::LoadU(DoubleTag(), x); }

// Copies the last, incomplete vector and fills the lanes behind it.
template <class T>
HWY_INLINE void copy_tail(const T* x, std::size_t n, T fill, std::size_t lanes, T* tail) {
  for (std::size_t i = 0; i < lanes; ++i) tail[i] = fill;
  std::memcpy(tail, x, n * sizeof(T));
}

// The bits of a magnitude order like the number, and the integer unit is idle while the other
// works. For double, an integer minimum is slow on most targets.
HWY_INLINE auto magnitude(hn::Vec<hn::ScalableTag<float>> v) {
  const hn::ScalableTag<std::uint32_t> d;
  return hn::And(hn::BitCast(d, v), hn::Set(d, 0x7fffffff));
}
HWY_INLINE DoubleVector magnitude(DoubleVector v) { return hn::Abs(v); }

HWY_INLINE double lowest(hn::Vec<hn::ScalableTag<std::uint32_t>> magnitudes) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::uint32_t bits = hn::GetLane(hn::MinOfLanes(d, magnitudes));
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}
HWY_INLINE double lowest(DoubleVector magnitudes) {
  return hn::GetLane(hn::MinOfLanes(DoubleTag(), magnitudes));
}

template <class T>
HWY_INLINE BlockSums sum_block_impl(const T* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t double_lanes = hn::Lanes(DoubleTag());
  auto min = hn::Set(d, x[0]);
  auto max = min;
  auto abs_min = magnitude(min);
  // Two sets of sums: the latency of an addition is longer than the time between two of them.
  auto sum0 = hn::Zero(DoubleTag()), sum1 = sum0;
  auto abs0 = sum0, abs1 = sum0, square0 = sum0, square1 = sum0;
  const std::size_t step = 2 * double_lanes;  // one vector of T, or two
  const auto take = [&](const T* HWY_RESTRICT p) HWY_ATTR {
    add_sums(load_as_double(p), sum0, abs0, square0);
    add_sums(load_as_double(p + double_lanes), sum1, abs1, square1);
  };
  const auto bound = [&](const T* HWY_RESTRICT p) HWY_ATTR {
    for (std::size_t k = 0; k < step; k += lanes) {
      const auto v = hn::LoadU(d, p + k);
      min = hn::Min(min, v);
      max = hn::Max(max, v);
      abs_min = hn::Min(abs_min, magnitude(v));
    }
  };
  // Pointers, not indices: a load that is part of an instruction is slower with two registers.
  const T* const end = x + n;
  const T* p = x;
  for (; static_cast<std::size_t>(end - p) >= step; p += step) {
    bound(p);
    take(p);
  }
  if (p != end) {
    const auto rest = static_cast<std::size_t>(end - p);
    HWY_ALIGN T tail[2 * HWY_MAX_BYTES / sizeof(T)];
    copy_tail(p, rest, x[0], step, tail);  // repeats an element: changes no extreme
    bound(tail);
    copy_tail(p, rest, T{0}, step, tail);  // zeros: change no sum
    take(tail);
  }
  return {total(sum0, sum1),
          total(abs0, abs1),
          total(square0, square1),
          static_cast<double>(hn::GetLane(hn::MinOfLanes(d, min))),
          static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, max))),
          lowest(abs_min)};
}

struct Pivots {
  DoubleVector mean;
  DoubleVector abs_mean;
};

struct CenteredVectors {
  DoubleVector sum, square_sum, abs_sum, abs_square_sum;

  HWY_INLINE void add(const Pivots& pivots, DoubleVector v) {
    const auto off = hn::Sub(v, pivots.mean);
    const auto abs_off = hn::Sub(hn::Abs(v), pivots.abs_mean);
    sum = hn::Add(sum, off);
    square_sum = hn::MulAdd(off, off, square_sum);
    abs_sum = hn::Add(abs_sum, abs_off);
    abs_square_sum = hn::MulAdd(abs_off, abs_off, abs_square_sum);
  }
};

template <class T>
HWY_INLINE CenteredSums center_block_impl(const T* HWY_RESTRICT x, std::size_t n, double mean,
                                          double abs_mean) {
  const DoubleTag d;
  const std::size_t lanes = hn::Lanes(d);
  const Pivots pivots = {hn::Set(d, mean), hn::Set(d, abs_mean)};
  const auto zero = hn::Zero(d);
  CenteredVectors even = {zero, zero, zero, zero}, odd = even;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even.add(pivots, load_as_double(x + i));
    odd.add(pivots, load_as_double(x + i + lanes));
  }
  CenteredSums sums = {total(even.sum, odd.sum), total(even.square_sum, odd.square_sum),
                       total(even.abs_sum, odd.abs_sum),
                       total(even.abs_square_sum, odd.abs_square_sum)};
  for (; i < n; ++i) {
    const double v = static_cast<double>(x[i]);
    const double off = v - mean;
    const double abs_off = (v < 0.0 ? -v : v) - abs_mean;
    sums.sum += off;
    sums.square_sum += off * off;
    sums.abs_sum += abs_off;
    sums.abs_square_sum += abs_off * abs_off;
  }
  return sums;
}

BlockSums sum_float(const float* x, std::size_t n) { return sum_block_impl(x, n); }
BlockSums sum_double(const double* x, std::size_t n) { return sum_block_impl(x, n); }
CenteredSums center_float(const float* x, std::size_t n, double mean, double abs_mean) {
  return center_block_impl(x, n, mean, abs_mean);
}
CenteredSums center_double(const double* x, std::size_t n, double mean, double abs_mean) {
  return center_block_impl(x, n, mean, abs_mean);
}

}  // namespace HWY_NAMESPACE
}  // namespace tensortap::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tensortap::tensor {

HWY_EXPORT(sum_float);
HWY_EXPORT(sum_double);
HWY_EXPORT(center_float);
HWY_EXPORT(center_double);

BlockSums sum_block(const float* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(sum_float)(x, n); }
BlockSums sum_block(const double* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_double)(x, n);
}
CenteredSums center_block(const float* x, std::size_t n, double mean, double abs_mean) {
  return HWY_DYNAMIC_DISPATCH(center_float)(x, n, mean, abs_mean);
}
CenteredSums center_block(const double* x, std::size_t n, double mean, double abs_mean) {
  return HWY_DYNAMIC_DISPATCH(center_double)(x, n, mean, abs_mean);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
