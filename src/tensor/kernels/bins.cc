// The histogram of a block: counts of sign and half-octave, which are the topmost bits of a number.

#include <cstring>
#include <type_traits>

#include "tensor/block_kernels.h"
#include "tensor/histogram.h"

// clang-format off: the order matters
#include "tensor/kernel_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/bins.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tensortap::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Half-octave of the number 1.0 on the scale of the bits of T.
template <class T>
constexpr int kOneIndex = 2 * (sizeof(T) == 4 ? 127 : 1023);

template <class T>
HWY_INLINE void bin_scalar(const T* HWY_RESTRICT x, std::size_t n, int base,
                           std::uint64_t* HWY_RESTRICT counts) {
  using U = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int kShift = sizeof(T) == 4 ? 22 : 51;
  constexpr int kSignShift = sizeof(T) * 8 - 1;
  for (std::size_t i = 0; i < n; ++i) {
    U bits;
    std::memcpy(&bits, x + i, sizeof bits);
    const int index = static_cast<int>(bits << 1 >> (kShift + 1)) - base;
    const int depth = index < 0 ? 0 : index;
    counts[bits >> kSignShift != 0 ? 31 - depth : 32 + depth] += 1;
  }
}

template <class T>
HWY_INLINE void bin_block_impl(const T* HWY_RESTRICT x, std::size_t n, int top,
                               std::uint64_t* HWY_RESTRICT counts) {
  const int base = top + kOneIndex<T> - (Histogram::kBucketsPerSign - 1);
  bin_scalar(x, n, base, counts);
}

void bin_float(const float* x, std::size_t n, int top, std::uint64_t* counts) {
  bin_block_impl(x, n, top, counts);
}
void bin_double(const double* x, std::size_t n, int top, std::uint64_t* counts) {
  bin_block_impl(x, n, top, counts);
}

}  // namespace HWY_NAMESPACE
}  // namespace tensortap::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tensortap::tensor {

HWY_EXPORT(bin_float);
HWY_EXPORT(bin_double);

void bin_block(const float* x, std::size_t n, int top, std::uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(bin_float)(x, n, top, counts);
}
void bin_block(const double* x, std::size_t n, int top, std::uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(bin_double)(x, n, top, counts);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
