#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <vector>

#include <dlfcn.h>

#include "base/clock.h"

namespace tensortap {
namespace {

// How long a thread looks for work before it sleeps. Waking a sleeper costs more than that, and the
// jobs of one training step follow each other within it.
constexpr std::int64_t kSpinNs = 20'000;
constexpr int kPausesPerLook = 32;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Runs until `is_done()` or the spin time is over; says whether it was done.
template <class Predicate>
bool spin_until(bool may_spin, const Predicate& is_done) {
  if (is_done()) return true;
  if (!may_spin) return false;
  const std::int64_t end_ns = monotonic_time_ns() + kSpinNs;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      pause_processor();
      if (is_done()) return true;
    }
  } while (monotonic_time_ns() < end_ns);
  return false;
}

// The gate is one word, so that joining a job and closing it cannot pass each other:
// [job number | open | workers inside]. 32 bits, because that is what a futex waits on.
constexpr std::uint32_t kInsideMask = 0x0FFF;
constexpr std::uint32_t kOpen = 0x1000;
constexpr std::uint32_t kNextJob = 0x2000;

std::uint32_t job_number(std::uint32_t gate) { return gate / kNextJob; }

// How compiled code starts a parallel region; every OpenMP runtime on Linux offers it. Called with
// 0 threads it takes the team that the host has.
using OpenMpParallel = void (*)(void (*)(void*), void*, unsigned thread_count, unsigned flags);

OpenMpParallel find_host_openmp() {
  return std::bit_cast<OpenMpParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
}

bool is_main_thread() { return ::gettid() == ::getpid(); }

}  // namespace

// A job is open while the caller works on it. A worker may join an open job, and only such workers
// touch body, count and next; the caller closes the gate and waits until those inside have left. A
// worker that wakes up too late finds the gate closed and costs nobody any time.
struct ThreadPool::State {
  std::vector<pthread_t> threads;
  const pid_t owner_pid = ::getpid();
  const bool may_spin = available_processors() > 1;
  OpenMpParallel host_parallel = nullptr;
  std::atomic<bool> stops = false;
  std::atomic<bool> is_busy = false;
  alignas(64) std::atomic<std::uint32_t> gate = 0;
  // Counts jobs whose last worker has left: what the caller sleeps on.
  std::atomic<std::uint32_t> emptied = 0;
  const std::function<void(std::size_t)>* body = nullptr;
  std::size_t count = 0;
  alignas(64) std::atomic<std::size_t> next = 0;

  void work() noexcept {
    for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      (*body)(i);
    }
  }

  bool try_join(std::uint32_t seen) noexcept {
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() noexcept {
    const std::uint32_t before = gate.fetch_sub(1, std::memory_order_release);
    if ((before & (kInsideMask | kOpen)) != 1) return;
    emptied.fetch_add(1, std::memory_order_release);
    emptied.notify_one();
  }

  void serve() noexcept {
    std::uint32_t last_job = job_number(gate.load(std::memory_order_relaxed)) - 1;
    while (!stops.load(std::memory_order_relaxed)) {
      std::uint32_t seen = 0;
      const auto has_work = [&] {
        seen = gate.load(std::memory_order_acquire);
        return stops.load(std::memory_order_relaxed) ||
               ((seen & kOpen) != 0 && job_number(seen) != last_job);
      };
      if (!spin_until(may_spin, has_work)) {
        gate.wait(seen, std::memory_order_acquire);
        continue;
      }
      last_job = job_number(seen);
      if (try_join(seen)) {
        work();
        leave();
      }
    }
  }

  void wait_until_empty() noexcept {
    const auto is_empty = [&] { return (gate.load(std::memory_order_acquire) & kInsideMask) == 0; };
    while (!spin_until(may_spin, is_empty)) {
      const std::uint32_t seen = emptied.load(std::memory_order_acquire);
      if (is_empty()) return;
      emptied.wait(seen, std::memory_order_acquire);
    }
  }

  void run(std::size_t job_count, const std::function<void(std::size_t)>& job) noexcept {
    body = &job;
    count = job_count;
    next.store(0, std::memory_order_relaxed);
    const std::uint32_t closed = gate.load(std::memory_order_relaxed);
    gate.store((closed + kNextJob) | kOpen, std::memory_order_release);
    const std::size_t helpers = std::min(job_count - 1, threads.size());
    if (helpers == threads.size()) {
      gate.notify_all();
    } else {
      for (std::size_t i = 0; i < helpers; ++i) gate.notify_one();
    }
    work();
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    wait_until_empty();
  }

  void run_on_host(std::size_t job_count, const std::function<void(std::size_t)>& job) noexcept {
    body = &job;
    count = job_count;
    next.store(0, std::memory_order_relaxed);
    host_parallel([](void* self) { static_cast<State*>(self)->work(); }, this, 0, 0);
  }

  void start(std::size_t thread_count) {
    // Signals belong to the program that hosts us, so the workers inherit a mask that blocks them
    // all.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    threads.reserve(thread_count);
    for (std::size_t i = 0; i < thread_count; ++i) {
      pthread_t thread;
      const auto entry = [](void* self) -> void* {
        static_cast<State*>(self)->serve();
        return nullptr;
      };
      // With fewer threads than asked for the work is done all the same.
      if (pthread_create(&thread, nullptr, entry, this) != 0) break;
      pthread_setname_np(thread, "tensortap-pool");
      threads.push_back(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void stop() noexcept {
    stops.store(true, std::memory_order_relaxed);
    gate.fetch_add(kNextJob, std::memory_order_release);
    gate.notify_all();
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  }
};

ThreadPool::ThreadPool(std::size_t thread_count, Helpers helpers)
    : state_(std::make_unique<State>()) {
  if (helpers == Helpers::kHostOpenMp) state_->host_parallel = find_host_openmp();
  state_->start(std::min<std::size_t>(thread_count, kInsideMask));
}

ThreadPool::~ThreadPool() {
  // In a forked child the threads do not exist; joining them would wait for ever.
  if (state_->owner_pid == ::getpid()) state_->stop();
}

void ThreadPool::parallel_for(std::size_t count,
                              const std::function<void(std::size_t)>& body) noexcept {
  State& state = *state_;
  const bool can_share = count > 1 && !state.threads.empty() && state.owner_pid == ::getpid() &&
                         !state.is_busy.exchange(true, std::memory_order_acquire);
  if (!can_share) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  if (state.host_parallel != nullptr && is_main_thread()) {
    state.run_on_host(count, body);
  } else {
    state.run(count, body);
  }
  state.is_busy.store(false, std::memory_order_release);
}

std::size_t ThreadPool::thread_count() const { return state_->threads.size(); }

std::size_t ThreadPool::available_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on machines with more processors than the set can name.
  const int count =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : get_nprocs();
  return static_cast<std::size_t>(std::max(count, 1));
}

}  // namespace tensortap
