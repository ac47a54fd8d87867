// Conversion of a block of any dtype to float or double, exact wherever the result can be.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/block_kernels.h"

// The order matters.
// clang-format off
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

using FloatTag = hn::ScalableTag<float>;

// The conversion instruction where there is one. Otherwise in integers, but for the subnormal
// numbers, whose mantissa is converted: Highway's own replacement gets infinities and NaN wrong.
HWY_INLINE hn::Vec<FloatTag> float16_values(const std::uint16_t* half) {
  const FloatTag d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(half)));
#else
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::RebindToSigned<FloatTag> di;
  const auto bits = hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint16_t, FloatTag>(), half));
  const auto abs = hn::And(bits, hn::Set(du, 0x7fffu));
  const auto rebias = hn::Set(du, (127u - 15u) << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(abs), rebias);
  const auto special = hn::Add(normal, rebias);  // exponent 31 becomes 255
  const auto whole = hn::ConvertTo(d, hn::BitCast(di, abs));
  const auto subnormal = hn::BitCast(du, hn::Mul(whole, hn::Set(d, 0x1p-24f)));
  // Signed comparisons: unsigned ones are slow on x86.
  const auto abs_signed = hn::BitCast(di, abs);
  const auto is_subnormal = hn::Lt(abs_signed, hn::Set(di, 0x0400));
  const auto is_special = hn::Gt(abs_signed, hn::Set(di, 0x7bff));
  const auto large = hn::IfThenElse(hn::RebindMask(du, is_special), special, normal);
  const auto value = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, large);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  return hn::BitCast(d, hn::Or(value, sign));
#endif
}

HWY_INLINE void decode_float16(const void* source, std::size_t n, float* HWY_RESTRICT to) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* half = static_cast<const std::uint16_t*>(source);  // perhaps at an odd address
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(float16_values(half + i), d, to + i);
  HWY_ALIGN std::uint16_t rest[HWY_MAX_BYTES] = {};
  HWY_ALIGN float tail[HWY_MAX_BYTES];
  std::memcpy(rest, half + i, (n - i) * sizeof(std::uint16_t));
  hn::Store(float16_values(rest), d, tail);
  std::memcpy(to + i, tail, (n - i) * sizeof(float));
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

// Loads as many numbers as a vector of double holds.
template <class Part>
HWY_INLINE DoubleVector load_magnitudes(const Part* parts) {
  const DoubleTag d;
  const hn::Rebind<Part, DoubleTag> dp;
  hn::Vec<decltype(dp)> re, im;
  hn::LoadInterleaved2(dp, parts, re, im);
  if constexpr (sizeof(Part) == sizeof(double)) {
    return magnitude(re, im);
  } else {
    return magnitude(hn::PromoteTo(d, re), hn::PromoteTo(d, im));
  }
}

template <class Part>
HWY_INLINE void decode_complex(const void* source, std::size_t n, double* HWY_RESTRICT to) {
  const DoubleTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* parts = static_cast<const Part*>(source);  // perhaps not aligned
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_magnitudes(parts + 2 * i), d, to + i);
  HWY_ALIGN Part rest[2 * HWY_MAX_BYTES / sizeof(double)] = {};
  HWY_ALIGN double tail[HWY_MAX_BYTES / sizeof(double)];
  std::memcpy(rest, parts + 2 * i, 2 * (n - i) * sizeof(Part));
  hn::Store(load_magnitudes(rest), d, tail);
  std::memcpy(to + i, tail, (n - i) * sizeof(double));
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
