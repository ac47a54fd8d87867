// A queue bounded by the bytes it holds, from many producers to one consumer: what stands between a
// training loop and its writer thread. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace tensortap {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Waits for room. An item larger than the whole capacity is let in when the queue is empty.
  // False when the queue is closed.
  bool push(T item, std::size_t size_bytes) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || has_room(size_bytes); });
    return enqueue(std::move(item), size_bytes);
  }

  // False at once when there is no room, or the queue is closed.
  bool try_push(T item, std::size_t size_bytes) {
    std::unique_lock lock(mutex_);
    if (!has_room(size_bytes)) return false;
    return enqueue(std::move(item), size_bytes);
  }

  // Waits for an item; nothing when the queue is closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return dequeue();
  }

  // Like pop, but gives up after the timeout.
  template <class Duration>
  std::optional<T> pop_for(Duration timeout) {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    return dequeue();
  }

  // No further pushes; what is queued can still be popped.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    filled_.notify_all();
    room_.notify_all();
  }

  bool is_drained() const {
    const std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }
  std::size_t size_bytes() const {
    const std::lock_guard lock(mutex_);
    return size_bytes_;
  }

 private:
  bool has_room(std::size_t size_bytes) const {
    return items_.empty() || size_bytes_ + size_bytes <= capacity_bytes_;
  }
  bool enqueue(T item, std::size_t size_bytes) {
    if (closed_) return false;
    items_.emplace_back(std::move(item), size_bytes);
    size_bytes_ += size_bytes;
    filled_.notify_one();
    return true;
  }
  std::optional<T> dequeue() {
    if (items_.empty()) return std::nullopt;
    auto [item, size_bytes] = std::move(items_.front());
    items_.pop_front();
    size_bytes_ -= size_bytes;
    room_.notify_all();
    return std::move(item);
  }

  const std::size_t capacity_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable filled_;
  std::deque<std::pair<T, std::size_t>> items_;
  std::size_t size_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace tensortap
