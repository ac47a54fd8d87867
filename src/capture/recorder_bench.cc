// What a step costs beside its statistics: nothing due, many small tensors, the plan's bit test.
#include <benchmark/benchmark.h>

#include "capture/recorder.h"
#include "capture/recorder_for_test.h"

namespace tensortap {
namespace {

constexpr std::size_t kTensors = 300;

struct Bench {
  Bench(std::int64_t interval, std::size_t elements)
      : recorder(recorder_options({"weights"}, interval), builtin_collections()) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      ids.push_back(recorder.intern("layer" + std::to_string(i) + ".weight"));
      tensors.emplace_back(std::vector<float>(elements, static_cast<float>(i)));
    }
    for (std::size_t i = 0; i < kTensors; ++i) items.push_back({ids[i], tensors[i].view()});
    recorder.begin_step();
  }
  Recorder recorder;
  std::vector<TensorId> ids;
  std::vector<FloatTensor> tensors;
  std::vector<RecordItem> items;
};

void nothing_due(benchmark::State& state) {
  Bench bench(std::int64_t{1} << 40, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.recorder.begin_step().any_due());
    bench.recorder.end_step();
  }
}
BENCHMARK(nothing_due);

void nothing_due_and_300_bit_tests(benchmark::State& state) {
  Bench bench(std::int64_t{1} << 40, 1);
  for (auto _ : state) {
    const StepPlan& plan = bench.recorder.begin_step();
    for (const TensorId id : bench.ids) benchmark::DoNotOptimize(plan.is_due(id));
    bench.recorder.end_step();
  }
}
BENCHMARK(nothing_due_and_300_bit_tests);

void step_of_300_small_tensors_in_a_batch(benchmark::State& state) {
  Bench bench(1, static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    bench.recorder.begin_step();
    bench.recorder.record_batch(bench.items);
    bench.recorder.end_step();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTensors));
}
BENCHMARK(step_of_300_small_tensors_in_a_batch)->Arg(1)->Arg(64)->Arg(1024)->Iterations(2000);

void step_of_300_small_tensors_one_by_one(benchmark::State& state) {
  Bench bench(1, 64);
  for (auto _ : state) {
    bench.recorder.begin_step();
    for (const RecordItem& item : bench.items) bench.recorder.record(item.tensor, item.view);
    bench.recorder.end_step();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTensors));
}
BENCHMARK(step_of_300_small_tensors_one_by_one)->Iterations(2000);

void intern_a_known_name(benchmark::State& state) {
  Bench bench(1, 1);
  for (auto _ : state) benchmark::DoNotOptimize(bench.recorder.intern("layer7.weight"));
}
BENCHMARK(intern_a_known_name);

}  // namespace
}  // namespace tensortap
