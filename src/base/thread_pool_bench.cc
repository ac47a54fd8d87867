#include <chrono>
#include <functional>
#include <thread>

#include <benchmark/benchmark.h>

#include "base/thread_pool.h"

namespace tensortap {
namespace {

// The price of handing out a job and collecting it, when the workers are still awake.
void empty_job(benchmark::State& state) {
  ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  const std::function<void(std::size_t)> body = [](std::size_t i) { benchmark::DoNotOptimize(i); };
  for (auto _ : state) pool.parallel_for(8, body);
}
BENCHMARK(empty_job)->Arg(0)->Arg(1)->Arg(3)->UseRealTime();

// The same after a pause in which they fell asleep.
void empty_job_after_sleep(benchmark::State& state) {
  ThreadPool pool(1);
  const std::function<void(std::size_t)> body = [](std::size_t i) { benchmark::DoNotOptimize(i); };
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(8, body);
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(empty_job_after_sleep)->UseManualTime()->Iterations(2'000);

}  // namespace
}  // namespace tensortap
