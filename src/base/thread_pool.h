// A fixed set of worker threads for short data-parallel jobs. Used by tensor/ under capture/. The
// caller takes part in the work and waits for its end; jobs do not nest. parallel_for is
// thread-safe (one job at a time; a second caller runs its job alone instead of waiting). After
// fork() in a child, the pool has no threads and runs everything on the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tensortap {

class ThreadPool {
 public:
  // Whose threads do the work. PyTorch's OpenMP threads go on spinning after each of its own
  // parallel regions, on the very cores that threads of ours would need; kHostOpenMp lets them do
  // our work instead, where an OpenMP runtime is loaded and the caller is the process's main
  // thread.
  enum class Helpers { kOwn, kHostOpenMp };

  // Threads besides the caller; 0 = everything on the caller. A borrowed team has the size that its
  // host gave it.
  explicit ThreadPool(std::size_t thread_count, Helpers helpers = Helpers::kOwn);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls body(i) once for every i in [0, count), on any thread. body must not throw. Allocates
  // nothing.
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body) noexcept;
  std::size_t thread_count() const;

  // Processors this process may use (its affinity mask), at least 1.
  static std::size_t available_processors();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
