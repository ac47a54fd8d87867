// Counts of special values in a block, and the separation of finite elements from the others. All
// tests are on the bits, so neither NaN nor a flush-to-zero mode disturbs them.

#include <cstring>
#include <limits>
#include <type_traits>

#include "tensor/block_kernels.h"

// clang-format off: the order matters
#include "tensor/kernel_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/counts.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tensortap::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

template <class T>
HWY_INLINE Bits<T> bits_of(double value) {
  const T narrow = static_cast<T>(value);
  Bits<T> bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

template <class D, class V>
HWY_INLINE std::size_t lane_total(D d, V negative_counts) {
  // A lane counts at most a block, far below the range of the narrower type.
  return static_cast<std::size_t>(-hn::GetLane(hn::SumOfLanes(d, negative_counts)));
}

template <class T>
HWY_INLINE BlockCounts count_block_impl(const T* HWY_RESTRICT x, std::size_t n,
                                        double smallest_normal) {
  using B = Bits<T>;
  const hn::ScalableTag<B> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto abs_mask = hn::Set(d, std::numeric_limits<B>::max());
  const auto sign_bit = hn::Set(d, std::numeric_limits<B>::min());
  const auto zero_bits = hn::Zero(d);
  const auto normal = hn::Set(d, bits_of<T>(smallest_normal));
  const auto tiny = hn::Set(d, static_cast<B>(bits_of<T>(0x1p-25) + 1));
  const auto huge = hn::Set(d, static_cast<B>(bits_of<T>(65520.0) - 1));
  // A true comparison is -1: each of these counts down.
  auto zero = hn::Zero(d), negative_zero = zero, below_normal = zero, below_tiny = zero;
  auto overflow = zero;
  std::size_t i = 0;
  const auto count = [&](auto raw, auto live) HWY_ATTR {
    const auto abs = hn::And(raw, abs_mask);
    zero = hn::Add(zero, hn::And(live, hn::VecFromMask(d, hn::Eq(abs, zero_bits))));
    negative_zero =
        hn::Add(negative_zero, hn::And(live, hn::VecFromMask(d, hn::Eq(raw, sign_bit))));
    below_normal = hn::Add(below_normal, hn::And(live, hn::VecFromMask(d, hn::Lt(abs, normal))));
    below_tiny = hn::Add(below_tiny, hn::And(live, hn::VecFromMask(d, hn::Lt(abs, tiny))));
    overflow = hn::Add(overflow, hn::And(live, hn::VecFromMask(d, hn::Gt(abs, huge))));
  };
  const auto all = hn::Set(d, B{-1});
  const hn::ScalableTag<T> dt;
  for (; i + lanes <= n; i += lanes) count(hn::BitCast(d, hn::LoadU(dt, x + i)), all);
  if (i < n) {
    HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(T)] = {};
    std::memcpy(tail, x + i, (n - i) * sizeof(T));
    count(hn::BitCast(d, hn::LoadU(dt, tail)), hn::VecFromMask(d, hn::FirstN(d, n - i)));
  }
  BlockCounts counts;
  counts.zero = lane_total(d, zero);
  counts.negative_zero = lane_total(d, negative_zero);
  // A dtype without subnormal numbers has the limit 0.
  counts.subnormal = smallest_normal > 0.0 ? lane_total(d, below_normal) - counts.zero : 0;
  counts.underflow = lane_total(d, below_tiny) - counts.zero;
  counts.overflow = lane_total(d, overflow);
  return counts;
}

template <class T>
HWY_INLINE FiniteSplit split_finite_impl(const T* HWY_RESTRICT x, std::size_t n,
                                         T* HWY_RESTRICT finite) {
  using B = Bits<T>;
  const hn::ScalableTag<T> dt;
  const hn::ScalableTag<B> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto abs_mask = hn::Set(d, std::numeric_limits<B>::max());
  const B inf_bits = bits_of<T>(std::numeric_limits<double>::infinity());
  const auto inf = hn::Set(d, inf_bits);
  FiniteSplit split = {0, 0, 0, 0};
  const auto take = [&](auto v, auto live) HWY_ATTR {
    const auto raw = hn::BitCast(d, v);
    const auto abs = hn::And(raw, abs_mask);
    const auto is_finite = hn::And(live, hn::Lt(abs, inf));
    // Compress in a register: Zen 4 has a compressing store that takes hundreds of cycles.
    hn::StoreU(hn::Compress(v, hn::RebindMask(dt, is_finite)), dt, finite + split.finite);
    split.finite += hn::CountTrue(d, is_finite);
    split.nan += hn::CountTrue(d, hn::And(live, hn::Gt(abs, inf)));
    split.positive_inf += hn::CountTrue(d, hn::And(live, hn::Eq(raw, inf)));
  };
  std::size_t i = 0;
  const auto all = hn::FirstN(d, lanes);
  for (; i + lanes <= n; i += lanes) take(hn::LoadU(dt, x + i), all);
  if (i < n) {
    HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(T)] = {};
    std::memcpy(tail, x + i, (n - i) * sizeof(T));
    take(hn::LoadU(dt, tail), hn::FirstN(d, n - i));
  }
  split.negative_inf = n - split.finite - split.nan - split.positive_inf;
  return split;
}

BlockCounts count_float(const float* x, std::size_t n, double smallest_normal) {
  return count_block_impl(x, n, smallest_normal);
}
BlockCounts count_double(const double* x, std::size_t n, double smallest_normal) {
  return count_block_impl(x, n, smallest_normal);
}
FiniteSplit split_float(const float* x, std::size_t n, float* finite) {
  return split_finite_impl(x, n, finite);
}
FiniteSplit split_double(const double* x, std::size_t n, double* finite) {
  return split_finite_impl(x, n, finite);
}

}  // namespace HWY_NAMESPACE
}  // namespace tensortap::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tensortap::tensor {

HWY_EXPORT(count_float);
HWY_EXPORT(count_double);
HWY_EXPORT(split_float);
HWY_EXPORT(split_double);

BlockCounts count_block(const float* x, std::size_t n, double smallest_normal) {
  return HWY_DYNAMIC_DISPATCH(count_float)(x, n, smallest_normal);
}
BlockCounts count_block(const double* x, std::size_t n, double smallest_normal) {
  return HWY_DYNAMIC_DISPATCH(count_double)(x, n, smallest_normal);
}
FiniteSplit split_finite(const float* x, std::size_t n, float* finite) {
  return HWY_DYNAMIC_DISPATCH(split_float)(x, n, finite);
}
FiniteSplit split_finite(const double* x, std::size_t n, double* finite) {
  return HWY_DYNAMIC_DISPATCH(split_double)(x, n, finite);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
