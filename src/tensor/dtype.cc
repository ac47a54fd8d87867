#include "tensor/dtype.h"

#include <array>

namespace tensortap {
namespace {

enum class Kind : std::uint8_t { kFloating, kComplex, kInteger };

struct DTypeRow {
  std::string_view name;
  std::uint8_t size_bytes;
  Kind kind;
};

// Indexed by the numeric value of DType; row 0 belongs to no dtype.
constexpr std::array<DTypeRow, kDTypeMax + 1> kRows = {{
    {"", 0, Kind::kInteger},
    {"float64", 8, Kind::kFloating},
    {"float32", 4, Kind::kFloating},
    {"float16", 2, Kind::kFloating},
    {"bfloat16", 2, Kind::kFloating},
    {"float8_e4m3fn", 1, Kind::kFloating},
    {"float8_e5m2", 1, Kind::kFloating},
    {"float8_e4m3fnuz", 1, Kind::kFloating},
    {"float8_e5m2fnuz", 1, Kind::kFloating},
    {"complex64", 8, Kind::kComplex},
    {"complex128", 16, Kind::kComplex},
    {"int8", 1, Kind::kInteger},
    {"int16", 2, Kind::kInteger},
    {"int32", 4, Kind::kInteger},
    {"int64", 8, Kind::kInteger},
    {"uint8", 1, Kind::kInteger},
    {"uint16", 2, Kind::kInteger},
    {"uint32", 4, Kind::kInteger},
    {"uint64", 8, Kind::kInteger},
    {"bool", 1, Kind::kInteger},
}};

const DTypeRow& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::uint8_t code = 1; code <= kDTypeMax; ++code) {
    if (kRows[code].name == name) return static_cast<DType>(code);
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_code(std::uint8_t code_untrusted) {
  if (code_untrusted == 0 || code_untrusted > kDTypeMax) return std::nullopt;
  return static_cast<DType>(code_untrusted);
}

std::size_t dtype_size_bytes(DType dtype) { return row(dtype).size_bytes; }
bool dtype_is_complex(DType dtype) { return row(dtype).kind == Kind::kComplex; }
bool dtype_is_floating(DType dtype) { return row(dtype).kind == Kind::kFloating; }

}  // namespace tensortap
