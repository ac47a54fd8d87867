// The budgets of the trace: statistics and raw values into it, opening a run, one tensor over many
// steps, a walk over all steps. Everything goes to a temporary directory and is removed again.
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tensortap-bench-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// What a float32 model gives: extremes are floats, moments are doubles, nearly all counts stay 0.
class StepMaker {
 public:
  StepMaker(std::size_t tensor_count, bool with_histograms) {
    for (int i = 0; i < 8; ++i) records_.push_back(make(tensor_count, with_histograms));
  }

  std::shared_ptr<const StepRecord> next() {
    auto step = std::make_shared<StepRecord>(records_[static_cast<std::size_t>(step_) % 8]);
    step->info.step = step_;
    step->info.mode_step = step_;
    step->info.mode = Mode::kTrain;
    if (step_ != 0) {
      step->new_tensors.clear();
      step->new_layouts.clear();
    }
    // New digits at every step: values that repeat would compress as real ones do not.
    for (StatisticsRow& row : step->rows) {
      const double factor = 1.0 + static_cast<double>(random_() >> 12) * 0x1p-53;
      Statistics& statistics = row.statistics;
      for (double* moment : {&statistics.mean, &statistics.variance, &statistics.abs_mean,
                             &statistics.abs_variance}) {
        *moment *= factor;
      }
      for (double* extreme : {&statistics.min, &statistics.max, &statistics.abs_min}) {
        // GCC 12 at -O3 leaves the rounding out when it does two of these at once.
        const volatile float rounded = static_cast<float>(*extreme * factor);
        *extreme = rounded;
      }
    }
    ++step_;
    return step;
  }

 private:
  StepRecord make(std::size_t tensor_count, bool with_histograms) {
    StepRecord step;
    step.new_layouts = {{DType::kFloat32, {512, 512}}};
    std::lognormal_distribution<double> spread(0.0, 0.2);
    for (std::size_t i = 0; i < tensor_count; ++i) {
      step.new_tensors.push_back(
          {"gradient/Model_layer" + std::to_string(i) + ".weight", {"gradients"}});
      StatisticsRow& row = step.rows.emplace_back();
      row.tensor = static_cast<TensorId>(i);
      Statistics& statistics = row.statistics;
      statistics.count = 512 * 512;
      statistics.min = static_cast<float>(-3 * spread(random_));
      statistics.max = static_cast<float>(3 * spread(random_));
      statistics.mean = 1e-4 * spread(random_);
      statistics.variance = spread(random_);
      statistics.abs_min = static_cast<float>(1e-7 * spread(random_));
      statistics.abs_mean = 0.8 * spread(random_);
      statistics.abs_variance = 0.4 * spread(random_);
      row.has_histogram = with_histograms;
      row.histogram.top = 3;
      for (std::size_t b = 8; b < 56; ++b) row.histogram.counts[b] = random_() % 9000;
    }
    return step;
  }

  std::mt19937_64 random_{1};
  std::vector<StepRecord> records_;
  std::int64_t step_ = 0;
};

void write_run(const std::string& path, std::size_t step_count, std::size_t tensor_count,
               bool with_histograms, TraceWriterOptions options = {}) {
  StepMaker maker(tensor_count, with_histograms);
  TraceWriter writer(open_storage(path), std::move(options));
  for (std::size_t i = 0; i < step_count; ++i) writer.submit(maker.next());
  writer.close();
}

// The steps are made beforehand, so that the writer is measured and not this file.
void write_statistics(benchmark::State& state, bool with_histograms) {
  constexpr std::size_t kTensors = 300;
  constexpr std::size_t kSteps = 1000;
  StepMaker maker(kTensors, with_histograms);
  std::vector<std::shared_ptr<const StepRecord>> steps;
  for (std::size_t i = 0; i < kSteps; ++i) steps.push_back(maker.next());
  std::uint64_t frame_bytes = 0;
  std::uint64_t file_bytes = 0;
  for (auto _ : state) {
    const TemporaryFolder folder;
    const auto start = Clock::now();
    TraceWriter writer(open_storage(folder.path("run")), {});
    for (const auto& step : steps) writer.submit(step);
    writer.close();
    state.SetIterationTime(seconds_since(start));
    frame_bytes = writer.counters().written_bytes;
    file_bytes = 0;
    for (const StorageEntry& entry : open_storage(folder.path("run"))->list("trace/")) {
      file_bytes += entry.size_bytes;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kSteps * kTensors));
  state.counters["frame_bytes_per_row"] = static_cast<double>(frame_bytes) / (kSteps * kTensors);
  state.counters["file_bytes_per_row"] = static_cast<double>(file_bytes) / (kSteps * kTensors);
}
void BM_write_statistics(benchmark::State& state) { write_statistics(state, false); }
BENCHMARK(BM_write_statistics)->UseManualTime()->Unit(benchmark::kMillisecond);
void BM_write_statistics_histogram(benchmark::State& state) { write_statistics(state, true); }
BENCHMARK(BM_write_statistics_histogram)->UseManualTime()->Unit(benchmark::kMillisecond);

constexpr std::size_t kRawBytes = std::size_t{4} << 20;
constexpr std::size_t kRawsPerStep = 8;
constexpr std::size_t kRawSteps =
    3;  // few enough that the kernel does not begin to throttle the writer

double plain_write_seconds(const std::string& path, const std::vector<RawTensor>& raws) {
  const auto start = Clock::now();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (std::size_t step = 0; step < kRawSteps; ++step) {
    for (const RawTensor& raw : raws) {
      ssize_t written = ::write(fd, raw.data.data.get(), raw.data.size_bytes);
      benchmark::DoNotOptimize(written);
    }
  }
  ::close(fd);
  return seconds_since(start);
}

double trace_write_seconds(const std::string& path, const std::vector<RawTensor>& raws) {
  std::vector<std::shared_ptr<const StepRecord>> steps;
  for (std::size_t i = 0; i < kRawSteps; ++i) {
    auto step = std::make_shared<StepRecord>();
    step->info.step = static_cast<std::int64_t>(i);
    if (i == 0) {
      step->new_layouts = {{DType::kFloat32, {static_cast<std::int64_t>(kRawBytes / 4)}}};
      for (std::size_t t = 0; t < raws.size(); ++t)
        step->new_tensors.push_back({std::to_string(t), {}});
    }
    step->raws = raws;
    steps.push_back(std::move(step));
  }
  const auto start = Clock::now();
  TraceWriter writer(open_storage(path), {});
  for (const auto& step : steps) writer.submit(step);
  writer.close();
  return seconds_since(start);
}

// Plain write() and the trace take turns; the ratio is of the medians' kind: best against best.
void BM_write_raw(benchmark::State& state) {
  BufferPool pool(kRawBytes * kRawsPerStep);
  std::vector<RawTensor> raws;
  std::mt19937_64 random(2);
  for (std::size_t i = 0; i < kRawsPerStep; ++i) {
    RawTensor raw;
    raw.tensor = static_cast<TensorId>(i);
    raw.data = pool.acquire(kRawBytes);
    for (std::size_t at = 0; at < kRawBytes; at += 8) {
      const std::uint64_t value = random();
      std::memcpy(raw.data.data.get() + at, &value, 8);
    }
    raws.push_back(std::move(raw));
  }
  std::vector<double> ratios;
  for (auto _ : state) {
    const TemporaryFolder folder;
    const double plain = plain_write_seconds(folder.path("plain"), raws);
    fs::remove(folder.path("plain"));
    const double traced = trace_write_seconds(folder.path("run"), raws);
    ratios.push_back(plain / traced);
    state.SetIterationTime(traced);
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  state.counters["write_ratio"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(kRawBytes * kRawsPerStep * kRawSteps));
}
BENCHMARK(BM_write_raw)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(15);

void open_run(benchmark::State& state, const std::string& path, std::size_t step_count) {
  for (auto _ : state) {
    const auto source = open_trace(open_storage(path));
    if (source->workers().at(0)->steps().size() != step_count) state.SkipWithError("wrong run");
  }
}

void BM_open_1000x65(benchmark::State& state) {
  const TemporaryFolder folder;
  write_run(folder.path("run"), 1000, 65, true);
  open_run(state, folder.path("run"), 1000);
}
BENCHMARK(BM_open_1000x65)->Unit(benchmark::kMillisecond);

void BM_open_1000x65_unsealed(benchmark::State& state) {
  const TemporaryFolder folder;
  StepMaker maker(65, true);
  TraceWriter writer(open_storage(folder.path("run")), {});
  for (int i = 0; i < 1000; ++i) writer.submit(maker.next());
  writer.flush(10'000'000'000);
  open_run(state, folder.path("run"), 1000);
}
BENCHMARK(BM_open_1000x65_unsealed)->Unit(benchmark::kMillisecond);

// One run for all that follows: 30 million tensor-steps in about 60 segments.
const std::string& long_run() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    TraceWriterOptions options;
    options.segment_size_bytes = 12u << 20;
    std::string run = folder.path("run");
    StepMaker maker(300, false);
    TraceWriter writer(open_storage(run), options);
    std::mt19937_64 random(3);
    std::normal_distribution<double> noise;
    for (int i = 0; i < 100'000; ++i) {
      auto step = std::make_shared<StepRecord>(*maker.next());
      for (StatisticsRow& row : step->rows) {
        // One true column, the others constant: what is measured does not depend on them, the disk
        // does.
        const double mean = noise(random);
        row.statistics = Statistics{};
        row.statistics.count = 100;
        row.statistics.mean = mean;
      }
      writer.submit(std::move(step));
    }
    writer.close();
    return run;
  }();
  return path;
}

void BM_open_100000x300(benchmark::State& state) { open_run(state, long_run(), 100'000); }
BENCHMARK(BM_open_100000x300)->Unit(benchmark::kMillisecond);

void read_column(benchmark::State& state, StatisticId statistic) {
  const auto source = open_trace(open_storage(long_run()));
  TensorId tensor = 0;
  for (auto _ : state) {
    SourceColumn column;
    source->workers()[0]->read_column(tensor++ % 300, statistic, 0, 100'000, column);
    if (column.values.size() != 100'000) state.SkipWithError("wrong column");
  }
}
void BM_column_100000(benchmark::State& state) { read_column(state, StatisticId::kMean); }
BENCHMARK(BM_column_100000)->Unit(benchmark::kMillisecond);
void BM_column_100000_derived(benchmark::State& state) { read_column(state, StatisticId::kL2); }
BENCHMARK(BM_column_100000_derived)->Unit(benchmark::kMillisecond);

void walk(benchmark::State& state, bool with_histograms) {
  const TemporaryFolder folder;
  write_run(folder.path("run"), 2000, 300, with_histograms);
  const auto source = open_trace(open_storage(folder.path("run")));
  double sum = 0;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < 2000; ++i) {
      const auto step = source->workers()[0]->read_step(i);
      for (const StatisticsRow& row : step->rows) sum += row.statistics.abs_mean;
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * 2000 * 300);
}
void BM_walk(benchmark::State& state) { walk(state, false); }
BENCHMARK(BM_walk)->Unit(benchmark::kMillisecond);
void BM_walk_histogram(benchmark::State& state) { walk(state, true); }
BENCHMARK(BM_walk_histogram)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tensortap
