#include "base/thread_pool.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <memory>
#include <sched.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tensortap {
namespace {

// Every index once, in many jobs of many sizes on one pool.
TEST(ThreadPool, CallsEveryIndexOnce) {
  ThreadPool pool(3);
  for (std::size_t round = 0; round < 2'000; ++round) {
    const std::size_t count = round % 17;
    std::vector<std::atomic<int>> calls(count);
    pool.parallel_for(count, [&](std::size_t i) { calls[i].fetch_add(1); });
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(calls[i].load(), 1) << round << " " << i;
  }
}

// What the body wrote, without atomics, must be seen by the caller (and by the thread sanitizer).
TEST(ThreadPool, ResultsAreVisibleToTheCaller) {
  ThreadPool pool(3);
  std::vector<std::size_t> squares(1'000);
  for (std::size_t round = 1; round <= 50; ++round) {
    pool.parallel_for(squares.size(), [&](std::size_t i) { squares[i] = round * i * i; });
    std::size_t sum = 0;
    for (const std::size_t square : squares) sum += square;
    ASSERT_EQ(sum, round * 332'833'500);
  }
}

TEST(ThreadPool, WorksOnSeveralThreadsAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> inside = 0;
  // Each index waits for the other two, so one thread alone would never end.
  pool.parallel_for(3, [&](std::size_t) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 3);
}

#ifndef __SANITIZE_THREAD__  // which cannot see how libgomp synchronises

TEST(ThreadPool, BorrowsTheThreadsOfAnOpenMpRuntime) {
  // As PyTorch brings it: visible to everybody. Stays loaded.
  void* const runtime = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(runtime, nullptr) << dlerror();
  using SetThreads = void (*)(int);
  std::bit_cast<SetThreads>(dlsym(runtime, "omp_set_num_threads"))(3);
  // One thread of its own and the caller could never be three.
  ThreadPool pool(1, ThreadPool::Helpers::kHostOpenMp);
  std::atomic<int> inside = 0;
  pool.parallel_for(3, [&](std::size_t) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 3);
  std::vector<std::size_t> squares(1'000);
  pool.parallel_for(squares.size(), [&](std::size_t i) { squares[i] = i * i; });
  for (std::size_t i = 0; i < squares.size(); ++i) ASSERT_EQ(squares[i], i * i);
  // Not the main thread: the pool's own threads do it.
  std::atomic<int> calls = 0;
  std::thread([&] { pool.parallel_for(100, [&](std::size_t) { calls.fetch_add(1); }); }).join();
  EXPECT_EQ(calls.load(), 100);
}

#endif

TEST(ThreadPool, WorkersWakeUpAfterSleeping) {
  ThreadPool pool(1);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> inside = 0;
    pool.parallel_for(2, [&](std::size_t) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 2);
  }
}

TEST(ThreadPool, WithoutThreadsTheCallerWorksInOrder) {
  ThreadPool pool(0);
  std::vector<std::size_t> order;
  pool.parallel_for(4, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(ThreadPool, NestedJobsRunOnTheirCaller) {
  ThreadPool pool(2);
  std::atomic<int> calls = 0;
  std::atomic<int> strangers = 0;
  pool.parallel_for(8, [&](std::size_t) {
    const auto self = std::this_thread::get_id();
    pool.parallel_for(8, [&](std::size_t) {
      calls.fetch_add(1);
      if (std::this_thread::get_id() != self) strangers.fetch_add(1);
    });
  });
  EXPECT_EQ(calls.load(), 64);
  EXPECT_EQ(strangers.load(), 0);
}

TEST(ThreadPool, SeveralCallersDoNotDisturbEachOther) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&pool] {
      for (int round = 0; round < 500; ++round) {
        std::atomic<int> calls = 0;
        pool.parallel_for(5, [&](std::size_t) { calls.fetch_add(1); });
        EXPECT_EQ(calls.load(), 5);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(2);
    EXPECT_EQ(pool.thread_count(), 2U);
  }
}

// A DataLoader forks the training process: the child has the pool but not its threads.
TEST(ThreadPool, ForkedChildWorksAlone) {
  std::atomic<int> calls = 0;
  auto pool = std::make_unique<ThreadPool>(2);
  pool->parallel_for(10, [&](std::size_t) { calls.fetch_add(1); });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a child that hangs must not hang the test
    calls = 0;
    pool->parallel_for(10, [&](std::size_t) { calls.fetch_add(1); });
    pool.reset();
    ::_exit(calls.load() == 10 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  pool->parallel_for(10, [&](std::size_t) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 20);
}

TEST(ThreadPool, ProcessorsAreThoseOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(ThreadPool::available_processors(), 1U);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(ThreadPool::available_processors(), static_cast<std::size_t>(CPU_COUNT(&before)));
}

}  // namespace
}  // namespace tensortap
