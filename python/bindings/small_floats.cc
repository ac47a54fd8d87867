#include "bindings/small_floats.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tensortap::bindings {
namespace {

// The float8 formats of the OCP specification (FN, and E5M2 as IEEE) and of Graphcore and AMD
// (FNUZ).
struct Float8Format {
  int mantissa_bits;
  int bias;
  bool is_fnuz;  // no infinities, no negative zero; the only NaN is 0x80
};

Float8Format float8_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
      return {3, 7, false};
    case DType::kFloat8E5M2:
      return {2, 15, false};
    case DType::kFloat8E4M3FNUZ:
      return {3, 8, true};
    default:
      return {2, 16, true};
  }
}

float widen_float8(const Float8Format& format, std::uint8_t bits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (format.is_fnuz && bits == 0x80) return kNan;
  const int magnitude = bits & 0x7f;
  if (!format.is_fnuz) {
    // E4M3FN gives up infinities for range and has one NaN a sign; E5M2 keeps IEEE's top exponent.
    if (format.mantissa_bits == 3 && magnitude == 0x7f) return kNan;
    if (format.mantissa_bits == 2 && magnitude > 0x7c) return kNan;
    if (format.mantissa_bits == 2 && magnitude == 0x7c) {
      return std::copysign(std::numeric_limits<float>::infinity(), (bits & 0x80) != 0 ? -1.f : 1.f);
    }
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int fraction = magnitude & ((1 << format.mantissa_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction | (1 << format.mantissa_bits);
  const int scale = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  const float value = std::ldexp(static_cast<float>(significand), scale);
  return (bits & 0x80) != 0 ? -value : value;
}

}  // namespace

bool is_small_float(DType dtype) {
  return dtype >= DType::kBFloat16 && dtype <= DType::kFloat8E5M2FNUZ;
}

std::vector<float> widen_small_floats(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> wide(bytes.size() / dtype_size_bytes(dtype));
  if (dtype == DType::kBFloat16) {
    for (std::size_t i = 0; i < wide.size(); ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
      wide[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    return wide;
  }
  std::array<float, 256> table;
  const Float8Format format = float8_format(dtype);
  for (int bits = 0; bits < 256; ++bits) {
    table[static_cast<std::size_t>(bits)] = widen_float8(format, static_cast<std::uint8_t>(bits));
  }
  for (std::size_t i = 0; i < wide.size(); ++i) {
    wide[i] = table[std::to_integer<std::size_t>(bytes[i])];
  }
  return wide;
}

}  // namespace tensortap::bindings
