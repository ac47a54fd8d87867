// Conversion of a block of any dtype to float or double, exact wherever the result can be.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/block_kernels.h"

// clang-format off: the order matters
#include "tensor/kernel_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tensortap::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE T load_element(const void* source, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(source) + i * sizeof(T), sizeof value);
  return value;
}

// The compiler vectorises these for the target; they need nothing that Highway does better.
template <class From, class To>
HWY_INLINE void convert(const void* source, std::size_t n, To* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<To>(load_element<From>(source, i));
}

HWY_INLINE void decode_bool(const void* source, std::size_t n, float* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = load_element<std::uint8_t>(source, i) != 0 ? 1.0f : 0.0f;
  }
}

HWY_INLINE void decode_bfloat16(const void* source, std::size_t n, float* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load_element<std::uint16_t>(source, i))
                                 << 16);
  }
}

// In integers, but for the subnormal numbers, whose integer mantissa is converted: Highway's own
// conversion gets infinities and NaN wrong on targets without the instruction.
HWY_INLINE void decode_float16(const void* source, std::size_t n, float* HWY_RESTRICT to) {
  constexpr std::uint32_t kRebias = (127 - 15) << 23;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t half = load_element<std::uint16_t>(source, i);
    const std::uint32_t abs = half & 0x7fff;
    const std::uint32_t normal = (abs << 13) + kRebias;
    const std::uint32_t special = normal + kRebias;  // exponent 31 becomes 255
    const float subnormal_value = static_cast<float>(static_cast<std::int32_t>(abs)) * 0x1p-24f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(subnormal_value);
    const std::uint32_t bits = abs < 0x0400 ? subnormal : abs < 0x7c00 ? normal : special;
    to[i] = std::bit_cast<float>(bits | (half & 0x8000) << 16);
  }
}

HWY_INLINE void decode_table(const std::array<float, 256>& table, const void* source, std::size_t n,
                             float* HWY_RESTRICT to) {
  for (std::size_t i = 0; i < n; ++i) to[i] = table[load_element<std::uint8_t>(source, i)];
}

using DoubleTag = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<DoubleTag>;

// hypot of NumPy and C: infinite when a part is, even beside a NaN.
HWY_INLINE DoubleVector magnitude(DoubleVector re, DoubleVector im) {
  const DoubleTag d;
  const auto inf = hn::Set(d, std::numeric_limits<double>::infinity());
  const auto a = hn::Abs(re);
  const auto b = hn::Abs(im);
  const auto is_inf = hn::Or(hn::Eq(a, inf), hn::Eq(b, inf));
  // A power of two that brings the squares into range; exact.
  const auto large = hn::Max(a, b);
  const auto is_huge = hn::Gt(large, hn::Set(d, 0x1p500));
  const auto is_tiny = hn::Lt(large, hn::Set(d, 0x1p-450));
  const auto one = hn::Set(d, 1.0);
  const auto up = hn::Set(d, 0x1p600);
  const auto down = hn::Set(d, 0x1p-600);
  const auto scale = hn::IfThenElse(is_huge, down, hn::IfThenElse(is_tiny, up, one));
  const auto back = hn::IfThenElse(is_huge, up, hn::IfThenElse(is_tiny, down, one));
  const auto x = hn::Mul(a, scale);
  const auto y = hn::Mul(b, scale);
  const auto z = hn::Mul(hn::Sqrt(hn::MulAdd(x, x, hn::Mul(y, y))), back);
  return hn::IfThenElse(is_inf, inf, z);
}

template <class Part>
HWY_INLINE void decode_complex(const void* source, std::size_t n, double* HWY_RESTRICT to) {
  const DoubleTag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN double re[HWY_MAX_BYTES / sizeof(double)] = {};
  HWY_ALIGN double im[HWY_MAX_BYTES / sizeof(double)] = {};
  HWY_ALIGN double z[HWY_MAX_BYTES / sizeof(double)];
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = n - i < lanes ? n - i : lanes;
    for (std::size_t k = 0; k < count; ++k) {
      re[k] = static_cast<double>(load_element<Part>(source, 2 * (i + k)));
      im[k] = static_cast<double>(load_element<Part>(source, 2 * (i + k) + 1));
    }
    hn::Store(magnitude(hn::Load(d, re), hn::Load(d, im)), d, z);
    std::memcpy(to + i, z, count * sizeof(double));
  }
}

void decode_float(DType dtype, const std::array<float, 256>* table, const void* source,
                  std::size_t n, float* to) {
  switch (dtype) {
    case DType::kFloat16:
      return decode_float16(source, n, to);
    case DType::kBFloat16:
      return decode_bfloat16(source, n, to);
    case DType::kInt8:
      return convert<std::int8_t>(source, n, to);
    case DType::kInt16:
      return convert<std::int16_t>(source, n, to);
    case DType::kUInt8:
      return convert<std::uint8_t>(source, n, to);
    case DType::kUInt16:
      return convert<std::uint16_t>(source, n, to);
    case DType::kBool:
      return decode_bool(source, n, to);
    case DType::kFloat32:
      return convert<float>(source, n, to);
    default:
      return decode_table(*table, source, n, to);
  }
}

void decode_double(DType dtype, const void* source, std::size_t n, double* to) {
  switch (dtype) {
    case DType::kInt32:
      return convert<std::int32_t>(source, n, to);
    case DType::kInt64:
      return convert<std::int64_t>(source, n, to);
    case DType::kUInt32:
      return convert<std::uint32_t>(source, n, to);
    case DType::kUInt64:
      return convert<std::uint64_t>(source, n, to);
    case DType::kComplex64:
      return decode_complex<float>(source, n, to);
    case DType::kComplex128:
      return decode_complex<double>(source, n, to);
    default:
      return convert<double>(source, n, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tensortap::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tensortap::tensor {
namespace {

struct Float8Format {
  int exponent_bits;
  int bias;
  bool is_ieee;           // the highest exponent means infinity and NaN
  bool is_unsigned_zero;  // 0x80 is the only NaN, no negative zero ("fnuz")
};

constexpr float power_of_two(int exponent) {
  float value = 1.0f;
  for (; exponent > 0; --exponent) value *= 2.0f;
  for (; exponent < 0; ++exponent) value *= 0.5f;
  return value;
}

constexpr float float8_value(std::uint32_t bits, const Float8Format& format) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const int mantissa_bits = 7 - format.exponent_bits;
  const auto exponent = static_cast<int>((bits & 0x7f) >> mantissa_bits);
  const auto mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (format.is_unsigned_zero) {
    if (bits == 0x80) return kNaN;
  } else if (format.is_ieee && exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? kNaN : sign * std::numeric_limits<float>::infinity();
  } else if ((bits & 0x7f) == 0x7f) {
    return kNaN;
  }
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias - mantissa_bits;
  return sign * static_cast<float>(significand) * power_of_two(scale);
}

constexpr std::array<float, 256> float8_table(const Float8Format& format) {
  std::array<float, 256> table{};
  for (std::uint32_t bits = 0; bits < 256; ++bits) table[bits] = float8_value(bits, format);
  return table;
}

constexpr auto kE4M3FN = float8_table({4, 7, false, false});
constexpr auto kE5M2 = float8_table({5, 15, true, false});
constexpr auto kE4M3FNUZ = float8_table({4, 8, false, true});
constexpr auto kE5M2FNUZ = float8_table({5, 16, false, true});

const std::array<float, 256>* table_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
      return &kE4M3FN;
    case DType::kFloat8E5M2:
      return &kE5M2;
    case DType::kFloat8E4M3FNUZ:
      return &kE4M3FNUZ;
    case DType::kFloat8E5M2FNUZ:
      return &kE5M2FNUZ;
    default:
      return nullptr;
  }
}

}  // namespace

HWY_EXPORT(decode_float);
HWY_EXPORT(decode_double);

bool decodes_to_double(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kComplex64:
    case DType::kComplex128:
      return true;
    default:
      return false;
  }
}

void decode_block(DType dtype, const void* source, std::size_t n, float* destination) {
  HWY_DYNAMIC_DISPATCH(decode_float)(dtype, table_of(dtype), source, n, destination);
}
void decode_block(DType dtype, const void* source, std::size_t n, double* destination) {
  HWY_DYNAMIC_DISPATCH(decode_double)(dtype, source, n, destination);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
