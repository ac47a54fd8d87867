// The trial over runs on disk: what MemoryRun cannot show.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trial/run_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kRunId = "00000000000000000000000000000001";
constexpr std::int64_t kTenSeconds = 10'000'000'000;

class NativeTrial : public testing::Test {
 protected:
  NativeTrial() {
    path_ = testing::TempDir() + "native_trial_" + std::to_string(::getpid());
    std::filesystem::remove_all(path_);
    storage_ = open_storage(path_);
  }
  ~NativeTrial() override { std::filesystem::remove_all(path_); }

  void create_run() {
    storage_->put(kRunFile,
                  std::string(R"({"format":"tensortap","version":1,"id":")") + kRunId + "\"}");
  }
  std::unique_ptr<TraceWriter> writer(const std::string& worker, std::uint32_t session = 0,
                                      const Dictionary& dictionary = {}) {
    TraceWriterOptions options;
    options.worker = worker;
    options.run_id = kRunId;
    options.session = session;
    options.dictionary = dictionary;
    return std::make_unique<TraceWriter>(storage_, options);
  }

  std::string path_;
  std::shared_ptr<Storage> storage_;
};

TEST_F(NativeTrial, NoRunIsSaidWithThePath) {
  for (const std::string& path : {path_, path_ + "/deeper"}) {
    try {
      Trial::open(path);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_THAT(error.what(), EndsWith(path));
    }
  }
}

TEST_F(NativeTrial, AResumedRunHasOneValueAStep) {
  create_run();
  RecordMaker maker;
  for (std::uint32_t session = 0; session < 2; ++session) {
    const Dictionary known = maker.dictionary();
    const auto out = writer("worker_0", session, known);
    const std::int64_t end = session == 0 ? 151 : 201;
    for (std::int64_t step = session * 100; step < end; ++step) {
      const double loss = static_cast<double>(step) + (session == 0 ? 0.0 : 0.5);
      out->submit(maker.make(global_step(step, session), {{"loss", {loss}, {"losses"}}}));
    }
    out->close();
  }
  storage_->put(end_mark_name("worker_0"), "{}");
  const auto trial = Trial::open(path_);
  const Column loss = trial->column("loss", StatisticId::kMean);
  ASSERT_EQ(loss.steps.size(), 201u);
  for (std::size_t i = 0; i < loss.steps.size(); ++i) {
    const auto step = static_cast<double>(i);
    EXPECT_EQ(loss.values[i], i < 100 ? step : step + 0.5);
  }
  EXPECT_EQ(trial->row("loss", 99)->statistics.mean, 99.0);
  EXPECT_EQ(trial->row("loss", 100)->statistics.mean, 100.5);
  EXPECT_TRUE(trial->has_ended());
}

TEST_F(NativeTrial, TwoWorkersAreFollowedStepByStep) {
  create_run();
  RecordMaker first_maker;
  RecordMaker second_maker;
  const auto first = writer("worker_0");
  first->submit(first_maker.make(global_step(0), {{"w", {1, 2}}, {"loss", {1}}}));
  ASSERT_TRUE(first->flush(kTenSeconds));
  const auto trial = Trial::open(path_);
  EXPECT_THAT(trial->steps(), ElementsAre(0));

  const auto second = writer("worker_1");
  second->submit(second_maker.make(global_step(0), {{"loss", {3}}, {"w", {5, 6}}}));
  ASSERT_TRUE(second->flush(kTenSeconds));
  first->submit(first_maker.make(global_step(1), {{"w", {1, 2}}}));
  ASSERT_TRUE(first->flush(kTenSeconds));
  EXPECT_TRUE(trial->refresh());
  EXPECT_THAT(trial->workers(), ElementsAre("worker_0", "worker_1"));
  EXPECT_THAT(trial->steps(), ElementsAre(0));  // the second has not got step 1 yet
  EXPECT_EQ(trial->row("w", 0, Mode::kGlobal, "worker_1")->statistics.max, 6.0);

  std::thread training([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    second->submit(second_maker.make(global_step(1), {{"w", {7, 8}}}));
  });
  const std::int64_t wanted = 1;
  EXPECT_EQ(trial->wait_for_steps({&wanted, 1}, Mode::kGlobal, kTenSeconds), std::nullopt);
  training.join();
  EXPECT_THAT(trial->tensor_workers("w", 1), ElementsAre("worker_0", "worker_1"));
  EXPECT_THAT(trial->tensor_names({.step = 1}), ElementsAre("w"));

  first->close();
  second->close();
  storage_->put(end_mark_name("worker_0"), "{}");
  trial->refresh();
  EXPECT_FALSE(trial->has_ended());
  storage_->put(end_mark_name("worker_1"), "{}");
  trial->refresh();
  EXPECT_TRUE(trial->has_ended());
}

TEST_F(NativeTrial, DamageCostsWhatItHitsAndStopsNothing) {
  create_run();
  {
    RecordMaker maker;
    const auto out = writer("worker_0");
    for (std::int64_t step = 0; step < 50; ++step) {
      out->submit(
          maker.make(global_step(step), {{"loss", {static_cast<double>(step)}}, {"w", {1, 2}}}));
    }
    ASSERT_TRUE(out->flush(kTenSeconds));
    // A copy of the segment before it was sealed, with a byte flipped in the middle.
    std::string bytes = *storage_->get(segment_name("worker_0", 0));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x20);
    out->close();
    storage_->put(segment_name("worker_0", 0), bytes);
  }
  const auto trial = Trial::open(path_);
  EXPECT_THAT(trial->source().problems(), Not(IsEmpty()));
  const std::vector<std::int64_t> steps = trial->steps();
  EXPECT_GE(steps.size(), 20u);
  EXPECT_LT(steps.size(), 50u);
  const Column loss = trial->column("loss", StatisticId::kMean);
  EXPECT_EQ(loss.steps, steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(loss.values[i], static_cast<double>(steps[i]));
  }
}

}  // namespace
}  // namespace tensortap
