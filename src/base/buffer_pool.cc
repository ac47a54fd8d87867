#include "base/buffer_pool.h"

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace tensortap {
namespace {

constexpr std::size_t kAlignmentBytes = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// From here on a buffer is worth whole huge pages: its first touch costs a thirtieth.
constexpr std::size_t kHugeBufferBytes = std::size_t{4} << 20;

constexpr std::size_t round_up(std::size_t size, std::size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Four capacities an octave, so that tensors of nearly the same size share buffers and at most a
// quarter is wasted.
std::size_t capacity_for(std::size_t size_bytes) {
  if (size_bytes <= 4 * kAlignmentBytes) return round_up(size_bytes + (size_bytes == 0), 64);
  const std::size_t step = std::bit_floor(size_bytes) / 4;
  return round_up(round_up(size_bytes, step), kAlignmentBytes);
}

std::byte* allocate(std::size_t capacity_bytes) {
  const bool huge = capacity_bytes >= kHugeBufferBytes;
  const std::size_t alignment = huge ? kHugePageBytes : kAlignmentBytes;
  void* memory = std::aligned_alloc(alignment, round_up(capacity_bytes, alignment));
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: without huge pages the buffer works as well.
  if (huge) (void)::madvise(memory, round_up(capacity_bytes, alignment), MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

struct BufferPool::State {
  explicit State(std::size_t limit_bytes) : idle_limit_bytes(limit_bytes) {}
  ~State() {
    for (const auto& [capacity, data] : idle) std::free(data);
  }

  std::byte* take(std::size_t capacity_bytes) {
    const std::lock_guard lock(mutex);
    const auto found = idle.find(capacity_bytes);
    if (found == idle.end()) return nullptr;
    std::byte* data = found->second;
    idle.erase(found);
    idle_bytes -= capacity_bytes;
    return data;
  }

  void give_back(std::byte* data, std::size_t capacity_bytes) noexcept {
    try {
      const std::lock_guard lock(mutex);
      if (!closed && idle_bytes + capacity_bytes <= idle_limit_bytes) {
        idle.emplace(capacity_bytes, data);
        idle_bytes += capacity_bytes;
        return;
      }
    } catch (...) {  // no memory for the list entry: then the buffer is freed as well
    }
    std::free(data);
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    for (const auto& [capacity, data] : idle) std::free(data);
    idle.clear();
    idle_bytes = 0;
  }

  const std::size_t idle_limit_bytes;
  std::mutex mutex;
  std::multimap<std::size_t, std::byte*> idle;  // by capacity
  std::size_t idle_bytes = 0;
  bool closed = false;
};

BufferPool::BufferPool(std::size_t idle_limit_bytes)
    : state_(std::make_shared<State>(idle_limit_bytes)) {}

BufferPool::~BufferPool() { state_->close(); }

BufferPool::Buffer BufferPool::acquire(std::size_t size_bytes) {
  const std::size_t capacity_bytes = capacity_for(size_bytes);
  std::byte* data = state_->take(capacity_bytes);
  if (data == nullptr) data = allocate(capacity_bytes);
  // If the control block cannot be allocated, shared_ptr calls the deleter itself.
  return {std::shared_ptr<std::byte>(data,
                                     [state = state_, capacity_bytes](std::byte* released) {
                                       state->give_back(released, capacity_bytes);
                                     }),
          size_bytes};
}

}  // namespace tensortap
