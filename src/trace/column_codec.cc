#include "trace/column_codec.h"

#include <bit>

namespace tensortap::trace {
namespace {

bool survives_float(double value) {
  return std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float>(value))) ==
         std::bit_cast<std::uint64_t>(value);
}

// Constant as a bit pattern: NaN equals itself, +0 differs from -0.
template <class T>
bool all_equal(std::span<const T> values) {
  const auto first = std::bit_cast<std::uint64_t>(values.front());
  std::uint64_t difference = 0;
  for (const T value : values) difference |= std::bit_cast<std::uint64_t>(value) ^ first;
  return difference == 0;
}

template <class Stored, class T>
void store_as(std::span<const T> values, ByteBuffer& out) {
  std::byte* room = out.extend(values.size() * sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto stored = static_cast<Stored>(values[i]);
    std::memcpy(room + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

}  // namespace

Encoding choose_encoding(std::span<const std::uint64_t> values) noexcept {
  if (values.empty() || all_equal(values)) return Encoding::kConstantU64;
  std::uint64_t bits = 0;
  for (const std::uint64_t value : values) bits |= value;
  const int width = std::bit_width(bits);
  if (width <= 8) return Encoding::kU8;
  if (width <= 16) return Encoding::kU16;
  return width <= 32 ? Encoding::kU32 : Encoding::kU64;
}

Encoding choose_encoding(std::span<const double> values) noexcept {
  if (values.empty() || all_equal(values)) return Encoding::kConstantF64;
  bool all_float = true;
  for (const double value : values) all_float &= survives_float(value);
  return all_float ? Encoding::kF32 : Encoding::kF64;
}

void encode_values(std::span<const std::uint64_t> values, Encoding encoding, ByteBuffer& out) {
  switch (encoding) {
    case Encoding::kU8:
      return store_as<std::uint8_t>(values, out);
    case Encoding::kU16:
      return store_as<std::uint16_t>(values, out);
    case Encoding::kU32:
      return store_as<std::uint32_t>(values, out);
    case Encoding::kU64:
      return store_as<std::uint64_t>(values, out);
    default:
      return out.put(values.empty() ? std::uint64_t{0} : values.front());
  }
}

void encode_values(std::span<const double> values, Encoding encoding, ByteBuffer& out) {
  switch (encoding) {
    case Encoding::kF32:
      return store_as<float>(values, out);
    case Encoding::kF64:
      return store_as<double>(values, out);
    default:
      return out.put(values.empty() ? 0.0 : values.front());
  }
}

bool make_column_view(std::uint8_t encoding_untrusted, std::span<const std::byte> data,
                      std::size_t count, ColumnView& out) noexcept {
  if (encoding_untrusted > kEncodingMax) return false;
  const auto encoding = static_cast<Encoding>(encoding_untrusted);
  if (is_constant(encoding)) {
    if (data.size() != 8) return false;
  } else {
    const std::size_t width = encoding_width(encoding);
    if (data.size() / width != count || data.size() % width != 0) return false;
    if (count == 0) return false;  // the empty column is a constant
  }
  out = {encoding, data};
  return true;
}

}  // namespace tensortap::trace
