// Little-endian encoding to a byte buffer and checked decoding from untrusted bytes. Used by
// trace/. ByteReader never reads past its end: a failed read returns false and leaves the output
// untouched. Not thread-safe; no endianness but little is produced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tensortap {

using Bytes = std::vector<std::byte>;

// Appends to a buffer that the caller keeps and reuses (fresh pages cost more than the copy).
class ByteWriter {
 public:
  explicit ByteWriter(Bytes& out) : out_(out) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T value) { append(&value, sizeof value); }
  void put_varint(std::uint64_t value);    // LEB128, 1 to 10 bytes
  void put_string(std::string_view text);  // varint length, then the bytes
  void append(const void* data, std::size_t size_bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), first, first + size_bytes);
  }
  void pad_to(std::size_t alignment_bytes);  // zero bytes until size() is a multiple
  std::size_t size() const { return out_.size(); }

 private:
  Bytes& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Not for bool: a byte that is neither 0 nor 1 would be undefined behaviour.
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
      [[nodiscard]] bool get(T& value) noexcept {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool get_varint(std::uint64_t& value) noexcept;
  // The view points into the bytes being read.
  [[nodiscard]] bool get_string(std::string_view& text) noexcept;
  [[nodiscard]] bool get_bytes(std::size_t size_untrusted,
                               std::span<const std::byte>& out) noexcept;
  [[nodiscard]] bool skip(std::size_t size_untrusted) noexcept;

  std::size_t position() const noexcept { return position_; }
  std::size_t remaining() const noexcept { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace tensortap
