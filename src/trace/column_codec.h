// How a column of numbers is stored, in a step and in the index: as one constant, or in the
// narrowest type that gives every value back bit by bit. Values keep random access, so one tensor
// is read without decoding the others. Used by trace/ only. Thread-safe; reading is noexcept on
// bytes that ColumnView::is_valid accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

namespace tensortap::trace {

enum class Encoding : std::uint8_t {
  kConstantU64 = 0,  // 8 bytes, whatever the number of values
  kConstantF64 = 1,
  kU8 = 2,
  kU16 = 3,
  kU32 = 4,
  kU64 = 5,
  kF32 = 6,
  kF64 = 7,
};
inline constexpr std::uint8_t kEncodingMax = 7;

constexpr bool is_constant(Encoding encoding) { return encoding <= Encoding::kConstantF64; }
constexpr bool is_unsigned(Encoding encoding) {
  return encoding != Encoding::kConstantF64 && encoding < Encoding::kF32;
}
// Bytes a value; 0 for constants.
constexpr std::size_t encoding_width(Encoding encoding) {
  constexpr std::size_t kWidths[] = {0, 0, 1, 2, 4, 8, 4, 8};
  return kWidths[static_cast<std::size_t>(encoding)];
}
constexpr std::size_t encoded_size(Encoding encoding, std::size_t count) {
  return is_constant(encoding) ? 8 : encoding_width(encoding) * count;
}

Encoding choose_encoding(std::span<const std::uint64_t> values) noexcept;
Encoding choose_encoding(std::span<const double> values) noexcept;
// Appends encoded_size() bytes.
void encode_values(std::span<const std::uint64_t> values, Encoding encoding, ByteBuffer& out);
void encode_values(std::span<const double> values, Encoding encoding, ByteBuffer& out);

// Encoded values somewhere in memory.
struct ColumnView {
  Encoding encoding = Encoding::kConstantU64;
  std::span<const std::byte> data;

  bool is_present() const { return !data.empty(); }

  template <class T>
  T load(std::size_t index) const noexcept {
    T value;
    std::memcpy(&value, data.data() + index * sizeof(T), sizeof value);
    return value;
  }

  // Calls sink(i, value) for i in [first, last); the value is a std::uint64_t or a double.
  template <class Sink>
  void visit(std::size_t first, std::size_t last, Sink&& sink) const noexcept {
    switch (encoding) {
      case Encoding::kConstantU64:
        return visit_constant<std::uint64_t>(first, last, sink);
      case Encoding::kConstantF64:
        return visit_constant<double>(first, last, sink);
      case Encoding::kU8:
        return visit_as<std::uint8_t, std::uint64_t>(first, last, sink);
      case Encoding::kU16:
        return visit_as<std::uint16_t, std::uint64_t>(first, last, sink);
      case Encoding::kU32:
        return visit_as<std::uint32_t, std::uint64_t>(first, last, sink);
      case Encoding::kU64:
        return visit_as<std::uint64_t, std::uint64_t>(first, last, sink);
      case Encoding::kF32:
        return visit_as<float, double>(first, last, sink);
      case Encoding::kF64:
        return visit_as<double, double>(first, last, sink);
    }
  }
  // Floating-point values are not converted to integers: the caller checked is_unsigned().
  std::uint64_t integer(std::size_t index) const noexcept {
    std::uint64_t out = 0;
    visit(index, index + 1, [&](std::size_t, auto value) {
      if constexpr (std::is_same_v<decltype(value), std::uint64_t>) out = value;
    });
    return out;
  }

 private:
  template <class T, class Sink>
  void visit_constant(std::size_t first, std::size_t last, Sink& sink) const noexcept {
    if (first >= last) return;  // a column that is not there has no bytes
    const T value = load<T>(0);
    for (std::size_t i = first; i < last; ++i) sink(i, value);
  }
  template <class Stored, class Value, class Sink>
  void visit_as(std::size_t first, std::size_t last, Sink& sink) const noexcept {
    for (std::size_t i = first; i < last; ++i) sink(i, static_cast<Value>(load<Stored>(i)));
  }
};

// False when the encoding is unknown or `data` does not hold `count` values of it.
bool make_column_view(std::uint8_t encoding_untrusted, std::span<const std::byte> data,
                      std::size_t count, ColumnView& out) noexcept;

}  // namespace tensortap::trace
