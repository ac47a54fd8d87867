// Built-in rules over a recorded run of 2,000 steps x 300 tensors, without and with histograms:
// engine, trial and rule together, from the file. items_per_second is tensor-steps a second; the
// budget is 5 million on one core. And all rules at once on a step in memory.
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "base/error.h"
#include "rules/engine.h"
#include "rules/registry.h"
#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

constexpr std::int64_t kStepCount = 2000;
constexpr TensorId kTensorCount = 300;

// Every tenth tensor is a scalar of the losses, the others gradients; nothing is wrong with them.
std::shared_ptr<StepRecord> make_record(std::int64_t step, bool has_histogram) {
  auto record = std::make_shared<StepRecord>();
  record->info.step = record->info.mode_step = step;
  record->info.mode = Mode::kTrain;
  if (step == 0) {
    for (TensorId id = 0; id < kTensorCount; ++id) {
      const bool is_loss = id % 10 == 0;
      record->new_tensors.push_back({(is_loss ? "loss" : "gradient/layer") + std::to_string(id),
                                     {is_loss ? "losses" : "gradients"}});
    }
    record->new_layouts = {{DType::kFloat32, {64, 64}}, {DType::kFloat32, {}}};
  }
  record->rows.resize(kTensorCount);
  for (TensorId id = 0; id < kTensorCount; ++id) {
    StatisticsRow& row = record->rows[id];
    row.tensor = id;
    row.layout = id % 10 == 0 ? 1 : 0;
    row.statistics.count = id % 10 == 0 ? 1 : 4096;
    row.statistics.mean = 1.0 / static_cast<double>(step + 1);
    row.statistics.abs_mean = 1e-3 + row.statistics.mean;
    row.statistics.max = 3.0 * row.statistics.abs_mean;
    row.statistics.min = -row.statistics.max;
    row.statistics.variance = row.statistics.abs_mean * row.statistics.abs_mean;
    row.has_histogram = has_histogram;
    if (!has_histogram) continue;
    for (int bucket = 8; bucket < 56; ++bucket) {
      row.histogram.counts[static_cast<std::size_t>(bucket)] =
          static_cast<std::uint64_t>(60 + (bucket * 7 + step + id) % 50);
    }
  }
  return record;
}

// A closed run on disk, removed when the program ends.
class RecordedRun {
 public:
  explicit RecordedRun(bool has_histogram) {
    path_ = std::filesystem::temp_directory_path() /
            ("tensortap_rules_bench_" + std::to_string(::getpid()) + (has_histogram ? "_h" : ""));
    const std::shared_ptr<Storage> storage = open_storage(path_.string());
    storage->put(kRunFile,
                 R"({"format":"tensortap","version":1,"id":"00000000000000000000000000000001"})");
    TraceWriterOptions options;
    options.run_id = "00000000000000000000000000000001";
    TraceWriter writer(storage, options);
    for (std::int64_t step = 0; step < kStepCount; ++step) {
      writer.submit(make_record(step, has_histogram));
    }
    writer.close();
    storage->put(end_mark_name(options.worker), "{}");
  }
  ~RecordedRun() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string recorded_run(bool has_histogram) {
  static const RecordedRun without(false);
  static const RecordedRun with(true);
  return (has_histogram ? with : without).path();
}

void check_recorded(benchmark::State& state, const char* rule, bool has_histogram) {
  const std::string path = recorded_run(has_histogram);
  for (auto _ : state) {
    const auto trial = Trial::open(path);
    RuleEngine engine;
    engine.add({rule, {}, {}});
    engine.check_trial(*trial);
    engine.finish();
    benchmark::DoNotOptimize(engine.reports());
  }
  state.SetItemsProcessed(state.iterations() * kStepCount * kTensorCount);
}
BENCHMARK_CAPTURE(check_recorded, vanishing_gradient, "VanishingGradient", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_recorded, exploding_tensor, "ExplodingTensor", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_recorded, loss_not_decreasing, "LossNotDecreasing", false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_recorded, vanishing_gradient_histograms, "VanishingGradient", true)
    ->Unit(benchmark::kMillisecond);

// What a training with 300 tensors records, in the kinds that rules look for.
struct Kind {
  const char* prefix;
  const char* suffix;
  const char* collection;
  TensorId count;
  std::uint64_t elements;
};
constexpr std::array<Kind, 9> kKinds = {{
    {"Net_block", ".weight", "weights", 80, 4096},
    {"gradient/Net_block", ".weight", "gradients", 80, 4096},
    {"Net_block", ".bias", "biases", 40, 64},
    {"block", ".relu_output_0", "relu_output", 30, 8192},
    {"block", ".attention_output_0", "attention_output", 20, 8192},
    {"optimizer/Net_block", ".weight/exp_avg_sq", "optimizer_variables", 40, 4096},
    {"Net_input_", "", "model_inputs", 1, 8192},
    {"learning_rate/Adam/", "", "learning_rates", 4, 1},
    {"loss", "_output_0", "losses", 5, 1},
}};

std::shared_ptr<StepRecord> make_training_step() {
  auto record = make_record(0, true);
  record->new_tensors.clear();
  record->new_layouts.clear();
  for (const Kind& kind : kKinds) {
    record->new_layouts.push_back({DType::kFloat32, {static_cast<std::int64_t>(kind.elements)}});
    for (TensorId i = 0; i < kind.count; ++i) {
      StatisticsRow& row = record->rows[record->new_tensors.size()];
      row.layout = static_cast<LayoutId>(record->new_layouts.size() - 1);
      row.statistics.count = kind.elements;
      record->new_tensors.push_back(
          {kind.prefix + std::to_string(i) + kind.suffix, {kind.collection}});
    }
  }
  return record;
}

// All rules that can do with their defaults, on one step in memory: what they add to a training
// step. The budget is 300 us.
void check_all_in_process(benchmark::State& state) {
  RuleEngine engine;
  for (const RuleDescriptor* rule : builtin_rules()) {
    try {
      engine.add({std::string(rule->name), {}, {}});
    } catch (const Error&) {
      // One that has to be told what to look at.
    }
  }
  const std::shared_ptr<StepRecord> record = make_training_step();
  const Dictionary dictionary{record->new_tensors, record->new_layouts};
  const WorkerStep worker{"worker_0", 0, record.get(), &dictionary};
  std::int64_t step = 0;
  for (auto _ : state) {
    for (StatisticsRow& row : record->rows) row.statistics.mean *= 0.9999;
    engine.check({step, Mode::kTrain, step, {&worker, 1}});
    ++step;
  }
  state.counters["rules"] = static_cast<double>(engine.rule_count());
}
BENCHMARK(check_all_in_process)->Unit(benchmark::kMicrosecond)->MinTime(1.0);

}  // namespace
}  // namespace tensortap
