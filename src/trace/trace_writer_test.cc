// The writer under pressure: a full disk, a slow one, rotation, a fork, a reader that follows.
#include <atomic>
#include <chrono>
#include <sys/wait.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "storage/faulty_storage.h"
#include "trace/trace_for_test.h"

namespace tensortap::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Steps = std::vector<std::shared_ptr<const StepRecord>>;

constexpr std::int64_t kPatienceNs = 20'000'000'000;

// Collects the warnings of one test.
class LogCapture {
 public:
  LogCapture() {
    set_log_sink([this](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex_);
      if (level >= LogLevel::kWarning) messages_.emplace_back(message);
    });
  }
  ~LogCapture() { set_log_sink({}); }
  std::vector<std::string> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

TEST(TraceWriterTest, AFullDiskDropsCountsSaysSoOnceAndRecovers) {
  LogCapture log;
  RandomRun run(1);
  const auto inner = fresh_storage();
  const auto faults = std::make_shared<StorageFaults>();
  TraceWriter writer(make_faulty_storage(inner, faults), {});
  const Steps before = run.make({.step_count = 4});
  for (const auto& step : before) writer.submit(step);
  ASSERT_TRUE(writer.flush(kPatienceNs));
  faults->room_bytes = 100;  // the next step is cut in the middle
  const Steps lost = run.make({.step_count = 5});
  for (const auto& step : lost) writer.submit(step);
  ASSERT_TRUE(writer.flush(kPatienceNs));
  EXPECT_EQ(writer.counters().dropped_steps, 5u);
  EXPECT_THAT(writer.counters().last_error, HasSubstr("No space left"));
  EXPECT_EQ(log.messages().size(), 1u);
  faults->room_bytes = 1 << 30;
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // the first back-off is a second
  const Steps after = run.make({.step_count = 4});
  for (const auto& step : after) writer.submit(step);
  writer.close();
  EXPECT_EQ(writer.counters().written_steps, 8u);
  EXPECT_EQ(writer.counters().dropped_steps, 5u);
  const auto source = open_trace(inner);
  const WorkerSource& worker = *source->workers().at(0);
  ASSERT_EQ(worker.steps().size(), 8u);
  // The definitions in the dropped steps were kept: what follows uses them.
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(is_step(worker, i, *before[i]));
    EXPECT_TRUE(is_step(worker, 4 + i, *after[i]));
  }
  EXPECT_EQ(worker.dictionary().tensors.size(), run.dictionary.tensors.size());
}

TEST(TraceWriterTest, ADiskThatIsFullFromTheStartLeavesNoDebris) {
  LogCapture log;
  RandomRun run(2);
  const auto inner = fresh_storage();
  const auto faults = std::make_shared<StorageFaults>();
  faults->room_bytes = 10;
  {
    TraceWriter writer(make_faulty_storage(inner, faults), {});
    for (const auto& step : run.make({.step_count = 3})) writer.submit(step);
    writer.close();
    EXPECT_EQ(writer.counters().dropped_steps, 3u);
  }
  EXPECT_THAT(inner->list(""), IsEmpty());
}

TEST(TraceWriterTest, AFailedSealKeepsTheSteps) {
  LogCapture log;
  RandomRun run(3);
  const auto inner = fresh_storage();
  const auto faults = std::make_shared<StorageFaults>();
  const Steps steps = run.make({});
  {
    TraceWriter writer(make_faulty_storage(inner, faults), {});
    for (const auto& step : steps) writer.submit(step);
    ASSERT_TRUE(writer.flush(kPatienceNs));
    faults->room_bytes = 300;
  }
  const auto source = open_trace(inner);
  const WorkerSource& worker = *source->workers().at(0);
  ASSERT_EQ(worker.steps().size(), steps.size());
  for (std::uint32_t i = 0; i < steps.size(); ++i) EXPECT_TRUE(is_step(worker, i, *steps[i]));
  EXPECT_THAT(source->problems(), IsEmpty());
}

Steps big_steps(RandomRun& run, std::size_t count) {
  return run.make({.step_count = count, .tensor_count = 4});
}

TEST(TraceWriterTest, ASlowDiskDropsWholeStepsWhenAsked) {
  RandomRun run(4);
  const auto inner = fresh_storage();
  const auto faults = std::make_shared<StorageFaults>();
  faults->append_delay_ns = 20'000'000;
  TraceWriterOptions options;
  options.queue_size_bytes = 1;  // one step at a time
  options.backpressure = Backpressure::kDrop;
  TraceWriter writer(make_faulty_storage(inner, faults), options);
  Steps kept;
  for (const auto& step : big_steps(run, 30)) {
    if (writer.submit(step)) kept.push_back(step);
  }
  faults->append_delay_ns = 0;
  ASSERT_TRUE(writer.flush(kPatienceNs));
  const auto last = run.make_step({});
  EXPECT_TRUE(writer.submit(last));
  kept.push_back(last);
  writer.close();
  ASSERT_LT(kept.size(), 20u);
  EXPECT_EQ(writer.counters().dropped_steps, 31 - kept.size());
  const auto source = open_trace(inner);
  const WorkerSource& worker = *source->workers().at(0);
  ASSERT_EQ(worker.steps().size(), kept.size());
  for (std::uint32_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(is_step(worker, i, *kept[i]));
}

TEST(TraceWriterTest, ASlowDiskLosesNothingWhenBlocking) {
  RandomRun run(5);
  const auto inner = fresh_storage();
  const auto faults = std::make_shared<StorageFaults>();
  faults->append_delay_ns = 2'000'000;
  TraceWriterOptions options;
  options.queue_size_bytes = 1;
  const Steps steps = big_steps(run, 30);
  write_steps(make_faulty_storage(inner, faults), options, steps);
  EXPECT_EQ(open_trace(inner)->workers().at(0)->steps().size(), 30u);
}

TEST(TraceWriterTest, SegmentsRotateBySizeAndByAge) {
  RandomRun run(6);
  const Steps steps = run.make({});
  const auto by_size = fresh_storage();
  TraceWriterOptions options;
  options.segment_size_bytes = 1;
  write_steps(by_size, options, steps);
  EXPECT_EQ(by_size->list("trace/").size(), steps.size());

  RandomRun other(6);
  const auto by_age = fresh_storage();
  options = {};
  options.segment_duration_ns = 50'000'000;
  TraceWriter writer(by_age, options);
  writer.submit(other.make_step({}));
  ASSERT_TRUE(writer.flush(kPatienceNs));
  // An idle writer seals what has become old, so that a quiet run is readable by its index.
  for (int i = 0; i < 100 && !verify_trace(*by_age).segments.at(0).is_sealed; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(verify_trace(*by_age).segments.at(0).is_sealed);
  writer.submit(other.make_step({}));
  writer.close();
  EXPECT_EQ(by_age->list("trace/").size(), 2u);
}

TEST(TraceWriterTest, SequenceNumbersGoOnAfterThoseThatAreThere) {
  const auto storage = fresh_storage();
  storage->put(segment_name("worker_0", 41), "");
  storage->put(segment_name("worker_00", 99), "");
  RandomRun run(7);
  write_steps(storage, {}, run.make({.step_count = 2}));
  EXPECT_TRUE(storage->exists(segment_name("worker_0", 42)));
}

TEST(TraceWriterTest, AWriterWithoutStepsWritesNothing) {
  const auto storage = fresh_storage();
  { const TraceWriter writer(storage, {}); }
  EXPECT_THAT(storage->list(""), IsEmpty());
}

TEST(TraceWriterTest, AStepThatNobodyCouldReadIsDroppedAndSaid) {
  LogCapture log;
  RandomRun run(12);
  const auto storage = fresh_storage();
  TraceWriter writer(storage, {});
  const auto good = run.make_step({});
  ASSERT_TRUE(writer.submit(good));
  auto undefined = std::make_shared<StepRecord>();
  undefined->texts = {{99, "of no tensor"}};
  auto twice = std::make_shared<StepRecord>();
  twice->rows.resize(2);
  for (int i = 0; i < 3; ++i) {
    writer.submit(undefined);
    writer.submit(twice);
  }
  ASSERT_TRUE(writer.submit(run.make_step({})));
  writer.close();
  EXPECT_EQ(writer.counters().dropped_steps, 6u);
  EXPECT_EQ(log.messages().size(), 1u);
  EXPECT_EQ(open_trace(storage)->workers().at(0)->steps().size(), 2u);
  EXPECT_TRUE(verify_trace(*storage).is_clean());
}

TEST(TraceWriterTest, TwoTextsOfOneTensorAtOneStepAreOneStepOfIt) {
  const auto storage = fresh_storage();
  auto step = std::make_shared<StepRecord>();
  step->new_tensors = {{"notes", {}}};
  step->texts = {{0, "first"}, {0, "second"}};
  write_steps(storage, {}, {step});
  const auto source = open_trace(storage);
  EXPECT_THAT(source->workers().at(0)->tensor_ordinals(0), ::testing::ElementsAre(0));
  EXPECT_EQ(source->workers()[0]->read_step(0)->texts.size(), 2u);
  EXPECT_TRUE(verify_trace(*storage).is_clean());
}

TEST(TraceWriterTest, AfterCloseStepsAreRefused) {
  RandomRun run(8);
  TraceWriter writer(fresh_storage(), {});
  writer.close();
  writer.close();
  EXPECT_FALSE(writer.submit(run.make_step({})));
}

TEST(TraceWriterTest, AForkedChildWritesNothingAndDoesNotHang) {
  const TemporaryFolder folder;
  RandomRun run(9);
  const auto storage = open_storage(folder.path());
  auto writer = std::make_unique<TraceWriter>(storage, TraceWriterOptions{});
  ASSERT_TRUE(writer->submit(run.make_step({})));
  ASSERT_TRUE(writer->flush(kPatienceNs));
  const auto second = run.make_step({});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool accepted = writer->submit(second);
    const bool flushed = writer->flush(1'000'000);
    writer->close();
    writer.reset();
    ::_exit(accepted || flushed ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(writer->submit(second));
  writer->close();
  EXPECT_EQ(open_trace(storage)->workers().at(0)->steps().size(), 2u);
}

TEST(FollowTest, EachStepShowsWithItsLastByteAndNotBefore) {
  RandomRun run(10);
  const Steps steps = run.make({.step_count = 4, .tensor_count = 2});
  const auto written = fresh_storage();
  write_steps(written, {}, steps);
  const std::string bytes = *written->get(segment_name("worker_0", 0));

  const auto storage = fresh_storage();
  storage->put(kRunFile, "{}");
  const auto source = open_trace(storage);
  EXPECT_THAT(source->workers(), IsEmpty());
  const auto file = storage->create(segment_name("worker_0", 0));
  std::size_t seen = 0;
  std::size_t news = 0;
  for (const char byte : bytes) {
    const std::span<const std::byte> part = std::as_bytes(std::span(&byte, 1));
    file->append(std::span(&part, 1));
    const bool changed = source->refresh();
    const WorkerSource& worker = *source->workers().at(0);
    ASSERT_LE(worker.steps().size(), seen + 1);
    if (worker.steps().size() > seen) {
      ASSERT_TRUE(changed);
      ++news;
      ASSERT_TRUE(is_step(worker, static_cast<std::uint32_t>(seen), *steps[seen]));
      ++seen;
    }
  }
  EXPECT_EQ(seen, steps.size());
  EXPECT_EQ(news, steps.size());
  EXPECT_THAT(source->problems(), IsEmpty());
}

TEST(FollowTest, AReaderBesideAWriterSeesWholeStepsInOrder) {
  const TemporaryFolder folder;
  RandomRun run(11);
  const Steps steps = run.make({.step_count = 300});
  const auto storage = open_storage(folder.path());
  storage->put(kRunFile, "{}");
  std::atomic<bool> failed{false};
  std::thread writing([&] {
    TraceWriterOptions options;
    options.segment_size_bytes = 50'000;
    TraceWriter writer(storage, options);
    for (const auto& step : steps) {
      failed = failed || !writer.submit(step);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    writer.close();
  });
  const auto source = open_trace(open_storage(folder.path()));
  std::uint32_t seen = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (seen < steps.size() && std::chrono::steady_clock::now() < deadline) {
    source->refresh();
    if (source->workers().empty()) continue;
    const WorkerSource& worker = *source->workers()[0];
    for (; seen < worker.steps().size(); ++seen) {
      ASSERT_TRUE(is_step(worker, seen, *steps[seen]));
    }
  }
  writing.join();
  EXPECT_FALSE(failed);
  EXPECT_EQ(seen, steps.size());
  EXPECT_THAT(source->problems(), IsEmpty());
  EXPECT_TRUE(verify_trace(*storage).is_clean());
}

TEST(TraceWriterTest, LargeRawValuesAreWrittenWhileTheyAreChecked) {
  const TemporaryFolder folder;
  BufferPool pool(std::size_t{32} << 20);
  auto step = std::make_shared<StepRecord>();
  step->new_layouts = {{DType::kUInt8, {3'000'001}}};
  for (TensorId tensor = 0; tensor < 3; ++tensor) {
    step->new_tensors.push_back({"t" + std::to_string(tensor), {}});
    RawTensor raw{tensor, 0, pool.acquire(3'000'001)};
    for (std::size_t i = 0; i < raw.data.size_bytes; ++i) {
      raw.data.data.get()[i] = static_cast<std::byte>(i * (tensor + 3) >> 4);
    }
    step->raws.push_back(raw);
  }
  for (const bool compress : {false, true}) {
    TraceWriterOptions options;
    options.worker = compress ? "compressed" : "plain";
    options.compress_raw = compress;
    write_steps(open_storage(folder.path()), options, {step});
  }
  const auto source = open_trace(open_storage(folder.path()));
  EXPECT_TRUE(is_step(*source->workers().at(0), 0, *step));
  EXPECT_TRUE(is_step(*source->workers().at(1), 0, *step));
  EXPECT_TRUE(verify_trace(*open_storage(folder.path())).is_clean());
}

}  // namespace
}  // namespace tensortap::trace
