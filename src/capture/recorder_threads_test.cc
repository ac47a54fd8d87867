// Several threads recording into the same steps, for the thread sanitizer and for values.
#include <thread>

#include <gtest/gtest.h>

#include "capture/recorder.h"
#include "capture/recorder_for_test.h"

namespace tensortap {
namespace {

constexpr int kThreads = 4;
constexpr int kTensorsPerThread = 8;
constexpr int kSteps = 50;

std::string tensor_name(int thread, int tensor) {
  return "t" + std::to_string(thread) + "." + std::to_string(tensor) + ".weight";
}

// Records the thread's tensors: half by themselves, half in a batch; the value tells whose they
// are.
void record_some(Recorder& recorder, int thread, int step) {
  std::vector<FloatTensor> tensors;
  std::vector<RecordItem> batch;
  tensors.reserve(kTensorsPerThread);
  for (int i = 0; i < kTensorsPerThread; ++i) {
    const auto value = static_cast<float>(thread * 1000 + i * 100 + step);
    tensors.emplace_back(std::vector<float>(static_cast<std::size_t>(i) + 2, value));
    const TensorId id = recorder.intern(tensor_name(thread, i));
    if (i % 2 == 0) {
      recorder.record(id, tensors.back().view());
    } else {
      batch.push_back({id, tensors.back().view()});
    }
  }
  recorder.record_batch(batch);
  recorder.record_scalar("scalar/t" + std::to_string(thread), step);
  recorder.record_text("text/t" + std::to_string(thread), std::to_string(step));
}

TEST(RecorderThreads, LoseNothingAndMixNothingUp) {
  RecorderOptions options = recorder_options({"weights"}, 1);
  options.reduction_config.save_raw_tensor = true;
  options.compute_threads = 2;
  Recorder recorder(std::move(options), builtin_collections());
  KeepingSink sink;
  recorder.add_sink(&sink);
  for (int step = 0; step < kSteps; ++step) {
    recorder.begin_step();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] { record_some(recorder, thread, step); });
    }
    for (std::thread& thread : threads) thread.join();
    recorder.end_step();
  }
  recorder.close();
  ASSERT_EQ(sink.steps.size(), std::size_t{kSteps});
  for (int step = 0; step < kSteps; ++step) {
    const StepRecord& record = *sink.steps[static_cast<std::size_t>(step)];
    ASSERT_EQ(record.rows.size(), std::size_t{kThreads * (kTensorsPerThread + 1)});
    ASSERT_EQ(record.raws.size(), std::size_t{kThreads * kTensorsPerThread});
    ASSERT_EQ(record.texts.size(), std::size_t{kThreads});
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int i = 0; i < kTensorsPerThread; ++i) {
        const double value = thread * 1000 + i * 100 + step;
        const StatisticsRow* row = sink.row(record, tensor_name(thread, i));
        ASSERT_NE(row, nullptr);
        EXPECT_EQ(row->statistics.min, value);
        EXPECT_EQ(row->statistics.max, value);
        EXPECT_EQ(row->statistics.count, static_cast<std::uint64_t>(i) + 2);
      }
    }
  }
  EXPECT_EQ(recorder.counters().written_steps, std::uint64_t{kSteps});
}

}  // namespace
}  // namespace tensortap
