// Counts of special values in a block, and the separation of finite elements from the others. All
// tests are on the bits, so neither NaN nor a flush-to-zero mode disturbs them.

#include <cstring>
#include <limits>
#include <type_traits>

#include "tensor/block_kernels.h"

// The order matters.
// clang-format off
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

template <class T>
using BitsTag = hn::ScalableTag<Bits<T>>;
template <class T>
using BitsVector = hn::Vec<BitsTag<T>>;

// How many comparisons were true. AVX-512 has masks to count bits of; elsewhere a true lane is -1
// and a vector counts down, at most a block, far below the range of the narrower type.
template <class T>
struct Tally {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  std::size_t count = 0;
  HWY_INLINE void add(hn::Mask<BitsTag<T>> is_true) {
    count += hn::CountTrue(BitsTag<T>(), is_true);
  }
  HWY_INLINE std::size_t total() const { return count; }
#else
  BitsVector<T> count;
  HWY_INLINE Tally() : count(hn::Zero(BitsTag<T>())) {}
  HWY_INLINE void add(hn::Mask<BitsTag<T>> is_true) {
    count = hn::Add(count, hn::VecFromMask(BitsTag<T>(), is_true));
  }
  HWY_INLINE std::size_t total() const {
    return static_cast<std::size_t>(-hn::GetLane(hn::SumOfLanes(BitsTag<T>(), count)));
  }
#endif
};

// Calls body with the bits of every vector; the last is filled up with the number `fill`.
template <class T, class Body>
HWY_INLINE void for_each_vector(const T* HWY_RESTRICT x, std::size_t n, T fill, const Body& body) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(hn::BitCast(BitsTag<T>(), hn::LoadU(d, x + i)));
  if (i == n) return;
  HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(T)];
  for (std::size_t k = 0; k < lanes; ++k) tail[k] = fill;
  std::memcpy(tail, x + i, (n - i) * sizeof(T));
  body(hn::BitCast(BitsTag<T>(), hn::Load(d, tail)));
}

template <class T>
HWY_INLINE BlockCounts count_block_impl(const T* HWY_RESTRICT x, std::size_t n,
                                        const CountNeeds& needs) {
  using B = Bits<T>;
  const BitsTag<T> d;
  const auto abs_mask = hn::Set(d, std::numeric_limits<B>::max());
  const auto normal = hn::Set(d, bits_of<T>(needs.smallest_normal));
  const auto tiny = hn::Set(d, static_cast<B>(bits_of<T>(0x1p-25) + 1));
  const auto huge = hn::Set(d, static_cast<B>(bits_of<T>(65520.0) - 1));
  const auto zero_bits = hn::Zero(d);
  const auto sign_bit = hn::Set(d, std::numeric_limits<B>::min());
  Tally<T> zero, negative_zero, below_normal, below_tiny, overflow;
  const T one{1};  // is none of what is counted
  if (needs.zeros) {
    for_each_vector(x, n, one, [&](auto raw) HWY_ATTR {
      const auto abs = hn::And(raw, abs_mask);
      zero.add(hn::Eq(abs, zero_bits));
      negative_zero.add(hn::Eq(raw, sign_bit));
      below_tiny.add(hn::Lt(abs, tiny));
    });
  } else if (needs.underflows) {
    for_each_vector(x, n, one, [&](auto raw) HWY_ATTR {
      below_tiny.add(hn::Lt(hn::And(raw, abs_mask), tiny));
    });
  }
  if (needs.subnormals) {
    for_each_vector(x, n, T{65504}, [&](auto raw) HWY_ATTR {
      below_normal.add(hn::Lt(hn::And(raw, abs_mask), normal));
    });
  }
  if (needs.overflows) {
    for_each_vector(x, n, one,
                    [&](auto raw) HWY_ATTR { overflow.add(hn::Gt(hn::And(raw, abs_mask), huge)); });
  }
  BlockCounts counts;
  counts.zero = zero.total();
  counts.negative_zero = negative_zero.total();
  counts.subnormal = needs.subnormals ? below_normal.total() - counts.zero : 0;
  counts.underflow = below_tiny.total() - counts.zero;
  counts.overflow = overflow.total();
  return counts;
}

template <class T>
HWY_INLINE void split_one(T number, T* HWY_RESTRICT finite, FiniteSplit& split) {
  const Bits<T> inf = bits_of<T>(std::numeric_limits<double>::infinity());
  Bits<T> bits;
  std::memcpy(&bits, &number, sizeof bits);
  const Bits<T> abs = bits & std::numeric_limits<Bits<T>>::max();
  finite[split.finite] = number;  // overwritten by the next one unless it counts
  split.finite += abs < inf;
  split.nan += abs > inf;
  split.positive_inf += bits == inf;
}

template <class T>
HWY_INLINE FiniteSplit split_finite_impl(const T* HWY_RESTRICT x, std::size_t n,
                                         T* HWY_RESTRICT finite) {
  const hn::ScalableTag<T> dt;
  const BitsTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto abs_mask = hn::Set(d, std::numeric_limits<Bits<T>>::max());
  const auto inf = hn::Set(d, bits_of<T>(std::numeric_limits<double>::infinity()));
  FiniteSplit split = {0, 0, 0, 0};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(dt, x + i);
    const auto raw = hn::BitCast(d, v);
    const auto abs = hn::And(raw, abs_mask);
    const auto is_finite = hn::Lt(abs, inf);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    // Compress in a register: Zen 4 has a compressing store that takes hundreds of cycles.
    hn::StoreU(hn::Compress(v, hn::RebindMask(dt, is_finite)), dt, finite + split.finite);
    split.finite += hn::CountTrue(d, is_finite);
    split.nan += hn::CountTrue(d, hn::Gt(abs, inf));
    split.positive_inf += hn::CountTrue(d, hn::Eq(raw, inf));
#else
    if (hn::AllTrue(d, is_finite)) {
      hn::StoreU(v, dt, finite + split.finite);
      split.finite += lanes;
    } else {
      for (std::size_t k = 0; k < lanes; ++k) split_one(x[i + k], finite, split);
    }
#endif
  }
  for (; i < n; ++i) split_one(x[i], finite, split);
  split.negative_inf = n - split.finite - split.nan - split.positive_inf;
  return split;
}

BlockCounts count_float(const float* x, std::size_t n, const CountNeeds& needs) {
  return count_block_impl(x, n, needs);
}
BlockCounts count_double(const double* x, std::size_t n, const CountNeeds& needs) {
  return count_block_impl(x, n, needs);
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

BlockCounts count_block(const float* x, std::size_t n, const CountNeeds& needs) {
  return HWY_DYNAMIC_DISPATCH(count_float)(x, n, needs);
}
BlockCounts count_block(const double* x, std::size_t n, const CountNeeds& needs) {
  return HWY_DYNAMIC_DISPATCH(count_double)(x, n, needs);
}
FiniteSplit split_finite(const float* x, std::size_t n, float* finite) {
  return HWY_DYNAMIC_DISPATCH(split_float)(x, n, finite);
}
FiniteSplit split_finite(const double* x, std::size_t n, double* finite) {
  return HWY_DYNAMIC_DISPATCH(split_double)(x, n, finite);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
