#include "trial/scalar_value.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tensortap::trial {
namespace {

// A floating-point format of at most 16 bits.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;           // otherwise what overflows becomes NaN
  std::uint32_t nan;      // bit pattern, sign bit clear or (FNUZ) being the whole of it
  std::uint32_t largest;  // pattern of the largest finite number
  bool has_negative_zero;
};

constexpr SmallFloat kFloat16 = {5, 10, 15, true, 0x7e00, 0x7bff, true};
constexpr SmallFloat kBFloat16 = {8, 7, 127, true, 0x7fc0, 0x7f7f, true};
constexpr SmallFloat kE4M3FN = {4, 3, 7, false, 0x7f, 0x7e, true};
constexpr SmallFloat kE5M2 = {5, 2, 15, true, 0x7e, 0x7b, true};
constexpr SmallFloat kE4M3FNUZ = {4, 3, 8, false, 0x80, 0x7f, false};
constexpr SmallFloat kE5M2FNUZ = {5, 2, 16, false, 0x80, 0x7f, false};

std::uint32_t small_float_bits(double value, const SmallFloat& format) {
  const std::uint32_t sign =
      std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0u;
  if (std::isnan(value)) return format.nan;
  const std::uint32_t beyond = format.has_inf ? format.largest + 1 : format.nan;
  const std::uint32_t signed_beyond = format.has_inf ? sign | beyond : format.nan;
  if (std::isinf(value)) return signed_beyond;
  const double magnitude = std::abs(value);
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = [0.5, 1) * 2^exponent
  const int unbiased = std::max(exponent - 1, 1 - format.bias);
  // In units of the last place; nearbyint rounds to nearest even.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - unbiased));
  if (units == 0.0) return format.has_negative_zero ? sign : 0u;
  // Adding makes a mantissa that rounded up carry into the exponent, and the hidden bit count as
  // one.
  const auto bits = static_cast<std::int64_t>(units) +
                    (static_cast<std::int64_t>(unbiased + format.bias - 1) << format.mantissa_bits);
  if (bits > static_cast<std::int64_t>(format.largest)) return signed_beyond;
  return sign | static_cast<std::uint32_t>(bits);
}

template <class T>
void store(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof value);
}

template <class T>
void store_integer(double value, std::byte* out) {
  constexpr auto kLow = std::numeric_limits<T>::min();
  constexpr auto kHigh = std::numeric_limits<T>::max();
  T result = 0;
  if (value >= static_cast<double>(kHigh)) {
    result = kHigh;
  } else if (value <= static_cast<double>(kLow)) {
    result = kLow;
  } else if (!std::isnan(value)) {
    result = static_cast<T>(std::nearbyint(value));
  }
  store(result, out);
}

void store_small(double value, const SmallFloat& format, std::byte* out) {
  const std::uint32_t bits = small_float_bits(value, format);
  if (format.exponent_bits + format.mantissa_bits == 15) {
    store(static_cast<std::uint16_t>(bits), out);
  } else {
    store(static_cast<std::uint8_t>(bits), out);
  }
}

}  // namespace

void encode_scalar(double value, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kFloat64:
      return store(value, out);
    case DType::kFloat32:
      return store(static_cast<float>(value), out);
    case DType::kFloat16:
      return store_small(value, kFloat16, out);
    case DType::kBFloat16:
      return store_small(value, kBFloat16, out);
    case DType::kFloat8E4M3FN:
      return store_small(value, kE4M3FN, out);
    case DType::kFloat8E5M2:
      return store_small(value, kE5M2, out);
    case DType::kFloat8E4M3FNUZ:
      return store_small(value, kE4M3FNUZ, out);
    case DType::kFloat8E5M2FNUZ:
      return store_small(value, kE5M2FNUZ, out);
    case DType::kInt8:
      return store_integer<std::int8_t>(value, out);
    case DType::kInt16:
      return store_integer<std::int16_t>(value, out);
    case DType::kInt32:
      return store_integer<std::int32_t>(value, out);
    case DType::kInt64:
      return store_integer<std::int64_t>(value, out);
    case DType::kUInt8:
      return store_integer<std::uint8_t>(value, out);
    case DType::kUInt16:
      return store_integer<std::uint16_t>(value, out);
    case DType::kUInt32:
      return store_integer<std::uint32_t>(value, out);
    case DType::kUInt64:
      return store_integer<std::uint64_t>(value, out);
    case DType::kBool:
      return store(static_cast<std::uint8_t>(value != 0.0), out);
    case DType::kComplex64:
    case DType::kComplex128:
      std::memset(out, 0, dtype_size_bytes(dtype));
      return;
  }
}

}  // namespace tensortap::trial
