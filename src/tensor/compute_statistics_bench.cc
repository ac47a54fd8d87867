// Benchmarks of the statistics kernels. The budgets are ratios to memcpy of the same 64 MiB on one
// thread: the counter `memcpy_ratio` of BM_budget_f32/<target> and
// BM_budget_f32_histogram/<target>, where memcpy and kernel take turns and medians are compared, so
// that a noisy machine disturbs both alike.

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "tensor/compute_statistics.h"

namespace tensortap {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{64} << 20;

// What a weight matrix looks like.
const std::vector<float>& large_tensor() {
  static const std::vector<float> tensor = [] {
    std::vector<float> x(kLargeBytes / sizeof(float));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    // Repeats a megabyte: drawing all of it takes seconds, and the kernels cannot tell.
    const std::size_t drawn = std::size_t{1} << 18;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i < drawn ? normal(random) : x[i - drawn];
    return x;
  }();
  return tensor;
}

// Written once before it is measured: fresh pages cost more than the copy.
std::vector<float>& copy_target() {
  static std::vector<float> target(kLargeBytes / sizeof(float), 1.0f);
  return target;
}

void copy_large() {
  std::memcpy(copy_target().data(), large_tensor().data(), kLargeBytes);
  benchmark::ClobberMemory();
}

void compute(const void* data, DType dtype, std::int64_t extent, Histogram* histogram,
             ThreadPool* pool = nullptr) {
  Statistics statistics;
  compute_statistics({data, dtype, {&extent, 1}, {}}, statistics, histogram, pool);
  benchmark::DoNotOptimize(statistics);
}

void compute_large(Histogram* histogram, ThreadPool* pool = nullptr) {
  compute(large_tensor().data(), DType::kFloat32, static_cast<std::int64_t>(large_tensor().size()),
          histogram, pool);
}

template <class Body>
double seconds(const Body& body) {
  const std::int64_t begin_ns = monotonic_time_ns();
  body();
  return static_cast<double>(monotonic_time_ns() - begin_ns) * 1e-9;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void BM_memcpy(benchmark::State& state) {
  copy_large();
  for (auto _ : state) copy_large();
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kLargeBytes));
}
BENCHMARK(BM_memcpy)->Name("BM_memcpy/64MiB");

void budget(benchmark::State& state, const std::string& target, bool wants_histogram) {
  force_simd_target(target);
  Histogram histogram;
  std::vector<double> copies, kernels;
  copy_large();
  for (auto _ : state) {
    copies.push_back(seconds([] { copy_large(); }));
    kernels.push_back(seconds([&] { compute_large(wants_histogram ? &histogram : nullptr); }));
    state.SetIterationTime(kernels.back());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kLargeBytes));
  state.counters["memcpy_ratio"] = median(copies) / median(kernels);
  force_simd_target("");
}

void threads(benchmark::State& state) {
  ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  Histogram histogram;
  for (auto _ : state) compute_large(&histogram, &pool);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kLargeBytes));
}
BENCHMARK(threads)->Name("BM_statistics_f32_histogram_pool")->Arg(0)->Arg(1)->UseRealTime();

void small(benchmark::State& state, bool wants_histogram) {
  Histogram histogram;
  for (auto _ : state) {
    compute(large_tensor().data(), DType::kFloat32, state.range(0),
            wants_histogram ? &histogram : nullptr);
  }
}
BENCHMARK_CAPTURE(small, statistics, false)
    ->Name("BM_statistics_small")
    ->Arg(1)
    ->Arg(10)
    ->Arg(64)
    ->Arg(512)
    ->Arg(2048)
    ->Arg(16384);
BENCHMARK_CAPTURE(small, histogram, true)
    ->Name("BM_statistics_histogram_small")
    ->Arg(1)
    ->Arg(10)
    ->Arg(64)
    ->Arg(512)
    ->Arg(2048)
    ->Arg(16384);

// The weights and gradients of a network: many small tensors, a few large ones.
void batch(benchmark::State& state) {
  ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  std::vector<std::int64_t> extents;
  for (int layer = 0; layer < 24; ++layer) {
    for (const std::int64_t n : {65'536, 256, 196'608, 768, 256, 256, 262'144, 1024}) {
      extents.push_back(n);
    }
  }
  std::vector<Statistics> statistics(extents.size());
  std::vector<Histogram> histograms(extents.size());
  std::vector<StatisticsTask> tasks;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const TensorView view{large_tensor().data() + bytes / 4, DType::kFloat32, {&extents[i], 1}, {}};
    tasks.push_back({view, &statistics[i], &histograms[i]});
    bytes += extents[i] * 4;
  }
  for (auto _ : state) compute_statistics_batch(tasks, &pool);
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(batch)->Name("BM_statistics_batch_12M_parameters")->Arg(0)->Arg(1)->UseRealTime();

// One MiB in the cache, so that the conversion and not the memory is measured.
void dtypes(benchmark::State& state, DType dtype, bool wants_histogram) {
  const std::size_t size = dtype_size_bytes(dtype);
  const std::size_t count = (std::size_t{1} << 20) / size;
  std::vector<std::byte> bytes(count * size);
  std::mt19937 random(3);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0x3f);  // finite in every dtype
  if (dtype == DType::kFloat32) std::memcpy(bytes.data(), large_tensor().data(), bytes.size());
  Histogram histogram;
  for (auto _ : state) {
    compute(bytes.data(), dtype, static_cast<std::int64_t>(count),
            wants_histogram ? &histogram : nullptr);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

enum class Content { kTinyGradients, kHalfZeros, kHalfInfinite, kOffset, kOnes };

// Data that needs more than the first pass.
void hard(benchmark::State& state, Content content) {
  std::vector<float> x(large_tensor().begin(), large_tensor().begin() + (1 << 18));
  for (std::size_t i = 0; i < x.size(); ++i) {
    switch (content) {
      case Content::kTinyGradients:
        x[i] *= 1e-5f;
        break;
      case Content::kHalfZeros:
        x[i] = std::max(x[i], 0.0f);
        break;
      case Content::kHalfInfinite:
        if (x[i] < 0.0f) x[i] = -std::numeric_limits<float>::infinity();
        break;
      case Content::kOffset:
        x[i] = 1.0f + 0.01f * x[i];
        break;
      case Content::kOnes:
        x[i] = 1.0f;
        break;
    }
  }
  Histogram histogram;
  for (auto _ : state) {
    compute(x.data(), DType::kFloat32, static_cast<std::int64_t>(x.size()),
            state.range(0) != 0 ? &histogram : nullptr);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.size() * 4));
}
BENCHMARK_CAPTURE(hard, tiny_gradients, Content::kTinyGradients)
    ->Name("BM_statistics_hard/tiny_gradients")
    ->Arg(0)
    ->Arg(1);
BENCHMARK_CAPTURE(hard, half_zeros, Content::kHalfZeros)
    ->Name("BM_statistics_hard/half_zeros")
    ->Arg(0)
    ->Arg(1);
BENCHMARK_CAPTURE(hard, half_infinite, Content::kHalfInfinite)
    ->Name("BM_statistics_hard/half_infinite")
    ->Arg(0)
    ->Arg(1);
BENCHMARK_CAPTURE(hard, offset, Content::kOffset)
    ->Name("BM_statistics_hard/offset")
    ->Arg(0)
    ->Arg(1);
BENCHMARK_CAPTURE(hard, ones, Content::kOnes)->Name("BM_statistics_hard/ones")->Arg(0)->Arg(1);

// Targets and dtypes are known at run time only.
[[maybe_unused]] const bool registered = [] {
  for (const std::string& target : simd_targets()) {
    for (const bool wants_histogram : {false, true}) {
      const std::string name =
          std::string(wants_histogram ? "BM_budget_f32_histogram/" : "BM_budget_f32/") + target;
      benchmark::RegisterBenchmark(name.c_str(), budget, target, wants_histogram)->UseManualTime();
    }
  }
  for (std::uint8_t code = 1; code <= kDTypeMax; ++code) {
    const DType dtype = *dtype_from_code(code);
    for (const bool wants_histogram : {false, true}) {
      const std::string name = std::string(wants_histogram ? "BM_dtype_histogram/" : "BM_dtype/") +
                               std::string(dtype_name(dtype));
      benchmark::RegisterBenchmark(name.c_str(), dtypes, dtype, wants_histogram);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tensortap
