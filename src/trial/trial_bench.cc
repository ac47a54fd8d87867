// Opening a run of 1,000 steps x 65 tensors and asking it: names, one column, all columns, one
// step's row. Budget (docs/performance.md): open within 10 ms.
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

constexpr std::int64_t kStepCount = 1000;
constexpr TensorId kTensorCount = 65;
constexpr std::int64_t kLongStepCount = 100'000;
constexpr TensorId kLongTensorCount = 4;
constexpr const char* kRunId = "00000000000000000000000000000001";

// A closed run on disk, removed when the program ends.
class RecordedRun {
 public:
  RecordedRun(std::int64_t step_count, TensorId tensor_count) {
    path_ =
        std::filesystem::temp_directory_path() /
        ("tensortap_trial_bench_" + std::to_string(::getpid()) + "_" + std::to_string(step_count));
    const std::shared_ptr<Storage> storage = open_storage(path_.string());
    storage->put(kRunFile,
                 R"({"format":"tensortap","version":1,"id":"00000000000000000000000000000001"})");
    TraceWriterOptions options;
    options.run_id = kRunId;
    TraceWriter writer(storage, options);
    for (std::int64_t step = 0; step < step_count; ++step) {
      writer.submit(record(step, tensor_count));
    }
    writer.close();
    storage->put(end_mark_name(options.worker), "{}");
  }
  ~RecordedRun() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  static std::shared_ptr<const StepRecord> record(std::int64_t step, TensorId tensor_count) {
    auto record = std::make_shared<StepRecord>();
    record->info.step = record->info.mode_step = step;
    if (step == 0) {
      for (TensorId id = 0; id < tensor_count; ++id) {
        record->new_tensors.push_back({"gradient/layer" + std::to_string(id), {"gradients"}});
      }
      record->new_layouts.push_back({DType::kFloat32, {64, 64}});
    }
    record->rows.resize(tensor_count);
    for (TensorId id = 0; id < tensor_count; ++id) {
      StatisticsRow& row = record->rows[id];
      row.tensor = id;
      row.statistics.count = 4096;
      row.statistics.mean = 1e-3 * static_cast<double>(id) / static_cast<double>(step + 1);
      row.statistics.abs_mean = row.statistics.max = 0.5 / static_cast<double>(step + id + 1);
      row.statistics.min = -row.statistics.max;
      row.statistics.variance = row.statistics.abs_mean * row.statistics.abs_mean;
    }
    return record;
  }

  std::filesystem::path path_;
};

const std::string& recorded_run() {
  static const RecordedRun run(kStepCount, kTensorCount);
  static const std::string path = run.path();
  return path;
}

void open_run(benchmark::State& state) {
  const std::string& path = recorded_run();
  for (auto _ : state) benchmark::DoNotOptimize(Trial::open(path));
}
BENCHMARK(open_run)->Unit(benchmark::kMillisecond);

void open_and_list_names(benchmark::State& state) {
  const std::string& path = recorded_run();
  for (auto _ : state) benchmark::DoNotOptimize(Trial::open(path)->tensor_names());
}
BENCHMARK(open_and_list_names)->Unit(benchmark::kMillisecond);

void names_of_a_collection(benchmark::State& state) {
  const auto trial = Trial::open(recorded_run());
  for (auto _ : state) {
    benchmark::DoNotOptimize(trial->tensor_names({.collection = "gradients"}));
  }
}
BENCHMARK(names_of_a_collection)->Unit(benchmark::kMicrosecond);

void one_column(benchmark::State& state) {
  const auto trial = Trial::open(recorded_run());
  for (auto _ : state) {
    benchmark::DoNotOptimize(trial->column("gradient/layer7", StatisticId::kAbsMean));
  }
}
BENCHMARK(one_column)->Unit(benchmark::kMicrosecond);

void one_column_of_100000_steps(benchmark::State& state) {
  static const RecordedRun run(kLongStepCount, kLongTensorCount);
  const auto trial = Trial::open(run.path());
  for (auto _ : state) {
    benchmark::DoNotOptimize(trial->column("gradient/layer2", StatisticId::kAbsMean));
  }
}
BENCHMARK(one_column_of_100000_steps)->Unit(benchmark::kMillisecond);

void all_columns(benchmark::State& state) {
  const auto trial = Trial::open(recorded_run());
  const std::vector<std::string> names = trial->tensor_names();
  for (auto _ : state) {
    for (const std::string& name : names) {
      benchmark::DoNotOptimize(trial->column(name, StatisticId::kAbsMean));
    }
  }
}
BENCHMARK(all_columns)->Unit(benchmark::kMillisecond);

void one_row(benchmark::State& state) {
  const auto trial = Trial::open(recorded_run());
  std::int64_t step = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(trial->row("gradient/layer7", step));
    step = (step + 1) % kStepCount;
  }
}
BENCHMARK(one_row)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tensortap
