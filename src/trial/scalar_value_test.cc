#include "trial/scalar_value.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace tensortap::trial {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
T encoded(double value, DType dtype) {
  std::byte bytes[16] = {};
  EXPECT_EQ(dtype_size_bytes(dtype), sizeof(T));
  encode_scalar(value, dtype, bytes);
  T out;
  std::memcpy(&out, bytes, sizeof out);
  return out;
}

TEST(ScalarValue, WideFloatsAndIntegers) {
  EXPECT_EQ(encoded<double>(0.1, DType::kFloat64), 0.1);
  EXPECT_EQ(encoded<float>(0.1, DType::kFloat32), 0.1f);
  EXPECT_EQ(encoded<std::int8_t>(-128, DType::kInt8), -128);
  EXPECT_EQ(encoded<std::int8_t>(300, DType::kInt8), 127);
  EXPECT_EQ(encoded<std::int64_t>(9007199254740992.0, DType::kInt64), 9007199254740992);
  EXPECT_EQ(encoded<std::int64_t>(1e300, DType::kInt64), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(encoded<std::uint64_t>(18446744073709551615.0, DType::kUInt64),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(encoded<std::uint16_t>(-1, DType::kUInt16), 0);
  EXPECT_EQ(encoded<std::int32_t>(kNaN, DType::kInt32), 0);
  EXPECT_EQ(encoded<std::uint8_t>(1.0, DType::kBool), 1);
}

// Patterns from the formats' definitions (IEEE 754 binary16; bfloat16; OCP FP8; FNUZ).
TEST(ScalarValue, SixteenBitFloats) {
  EXPECT_EQ(encoded<std::uint16_t>(1.0, DType::kFloat16), 0x3c00);
  EXPECT_EQ(encoded<std::uint16_t>(-2.0, DType::kFloat16), 0xc000);
  EXPECT_EQ(encoded<std::uint16_t>(65504.0, DType::kFloat16), 0x7bff);
  EXPECT_EQ(encoded<std::uint16_t>(65520.0, DType::kFloat16), 0x7c00);
  EXPECT_EQ(encoded<std::uint16_t>(5.960464477539063e-08, DType::kFloat16), 0x0001);
  EXPECT_EQ(encoded<std::uint16_t>(6.103515625e-05, DType::kFloat16), 0x0400);
  EXPECT_EQ(encoded<std::uint16_t>(0.333251953125, DType::kFloat16), 0x3555);
  EXPECT_EQ(encoded<std::uint16_t>(1.0 + 1.0 / 2048, DType::kFloat16), 0x3c00);  // tie to even
  EXPECT_EQ(encoded<std::uint16_t>(1.0 + 3.0 / 2048, DType::kFloat16), 0x3c02);
  EXPECT_EQ(encoded<std::uint16_t>(-0.0, DType::kFloat16), 0x8000);
  EXPECT_EQ(encoded<std::uint16_t>(-kInf, DType::kFloat16), 0xfc00);
  EXPECT_EQ(encoded<std::uint16_t>(kNaN, DType::kFloat16), 0x7e00);
  EXPECT_EQ(encoded<std::uint16_t>(1.0, DType::kBFloat16), 0x3f80);
  EXPECT_EQ(encoded<std::uint16_t>(3.140625, DType::kBFloat16), 0x4049);
  EXPECT_EQ(encoded<std::uint16_t>(9.183549615799121e-41, DType::kBFloat16), 0x0001);
  EXPECT_EQ(encoded<std::uint16_t>(kInf, DType::kBFloat16), 0x7f80);
}

TEST(ScalarValue, EightBitFloats) {
  EXPECT_EQ(encoded<std::uint8_t>(448.0, DType::kFloat8E4M3FN), 0x7e);
  EXPECT_EQ(encoded<std::uint8_t>(kInf, DType::kFloat8E4M3FN), 0x7f);  // there is no infinity
  EXPECT_EQ(encoded<std::uint8_t>(0.001953125, DType::kFloat8E4M3FN), 0x01);
  EXPECT_EQ(encoded<std::uint8_t>(-1.0, DType::kFloat8E4M3FN), 0xb8);
  EXPECT_EQ(encoded<std::uint8_t>(57344.0, DType::kFloat8E5M2), 0x7b);
  EXPECT_EQ(encoded<std::uint8_t>(kInf, DType::kFloat8E5M2), 0x7c);
  EXPECT_EQ(encoded<std::uint8_t>(240.0, DType::kFloat8E4M3FNUZ), 0x7f);
  EXPECT_EQ(encoded<std::uint8_t>(kNaN, DType::kFloat8E4M3FNUZ), 0x80);
  EXPECT_EQ(encoded<std::uint8_t>(-0.0, DType::kFloat8E4M3FNUZ), 0x00);
  EXPECT_EQ(encoded<std::uint8_t>(1.0, DType::kFloat8E4M3FNUZ), 0x40);
  EXPECT_EQ(encoded<std::uint8_t>(57344.0, DType::kFloat8E5M2FNUZ), 0x7f);
}

}  // namespace
}  // namespace tensortap::trial
