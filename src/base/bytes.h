// Little-endian encoding to a byte buffer and checked decoding from untrusted bytes. Used by
// trace/. ByteReader never reads past its end: a failed read returns false and leaves the output
// untouched. Not thread-safe; no endianness but little is produced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tensortap {

// Values at a place in bytes that are known to reach that far.
template <class T>
requires std::is_arithmetic_v<T>
void store(std::byte* out, std::size_t offset, T value) {
  std::memcpy(out + offset, &value, sizeof value);
}
template <class T>
requires std::is_arithmetic_v<T> T load(const std::byte* bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

// Keeps its memory when it is emptied, and hands out room without filling it twice: what frames are
// built in.
class ByteBuffer {
 public:
  // Room for size_bytes more bytes, uninitialised. Pointers from earlier calls become invalid.
  std::byte* extend(std::size_t size_bytes) {
    if (capacity_ - size_ < size_bytes) grow(size_bytes);
    std::byte* room = memory_.get() + size_;
    size_ += size_bytes;
    return room;
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T value) { std::memcpy(extend(sizeof value), &value, sizeof value); }
  void append(const void* data, std::size_t size_bytes) {
    if (size_bytes > 0) std::memcpy(extend(size_bytes), data, size_bytes);
  }
  void append(std::string_view text) { append(text.data(), text.size()); }
  void append_zeros(std::size_t count) {
    if (count > 0) std::memset(extend(count), 0, count);
  }
  void put_varint(std::uint64_t value);    // LEB128, 1 to 10 bytes
  void put_string(std::string_view text);  // varint length, then the bytes
  void pad_to(std::size_t alignment) { append_zeros((alignment - size_ % alignment) % alignment); }
  void truncate(std::size_t size_bytes) { size_ = size_bytes; }
  void clear() { size_ = 0; }

  std::size_t size() const { return size_; }
  std::byte* data() { return memory_.get(); }
  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }
  std::span<const std::byte> bytes(std::size_t offset, std::size_t count) const {
    return bytes().subspan(offset, count);
  }

 private:
  void grow(std::size_t size_bytes) {
    std::size_t capacity = capacity_ < 1024 ? 1024 : capacity_ * 2;
    if (capacity < size_ + size_bytes) capacity = size_ + size_bytes;
    std::unique_ptr<std::byte[]> memory(new std::byte[capacity]);
    if (size_ > 0) std::memcpy(memory.get(), memory_.get(), size_);
    memory_ = std::move(memory);
    capacity_ = capacity;
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
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
