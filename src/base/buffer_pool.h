// Reused, 64-byte aligned byte buffers for raw tensor copies: touching fresh pages costs tens of
// times more than the copy itself. Thread-safe; buffers may outlive the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tensortap {

class BufferPool {
 public:
  // Buffers given back beyond this much idle memory are freed.
  explicit BufferPool(std::size_t idle_limit_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of exactly size_bytes (uninitialised); it returns to the pool when the last owner lets
  // go.
  struct Buffer {
    std::shared_ptr<std::byte> data;  // 64-byte aligned
    std::size_t size_bytes = 0;
    std::span<const std::byte> bytes() const { return {data.get(), size_bytes}; }
  };
  Buffer acquire(std::size_t size_bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tensortap
