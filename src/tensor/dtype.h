// Element types of tensors. The numeric values are written into traces: never renumber, only
// append. Used by every storey above. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tensortap {

enum class DType : std::uint8_t {
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kFloat8E4M3FN = 5,
  kFloat8E5M2 = 6,
  kFloat8E4M3FNUZ = 7,
  kFloat8E5M2FNUZ = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kInt8 = 11,
  kInt16 = 12,
  kInt32 = 13,
  kInt64 = 14,
  kUInt8 = 15,
  kUInt16 = 16,
  kUInt32 = 17,
  kUInt64 = 18,
  kBool = 19,
};

inline constexpr std::uint8_t kDTypeMax = 19;

// "float32", "bfloat16", "float8_e4m3fn", "complex64", "bool": the names PyTorch and ml_dtypes use.
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
// Checks a number read from a trace.
std::optional<DType> dtype_from_code(std::uint8_t code_untrusted);
std::size_t dtype_size_bytes(DType dtype);
bool dtype_is_complex(DType dtype);
bool dtype_is_floating(DType dtype);  // real floating point; complex is not

}  // namespace tensortap
