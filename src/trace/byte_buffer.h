// A byte buffer that keeps its memory when it is emptied, and hands out room without filling it
// twice: what frames are built in. Used by trace/ only. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace tensortap::trace {

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

}  // namespace tensortap::trace
