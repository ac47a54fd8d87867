// Metrics of the machine on their way into a run.
#include <chrono>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "session/tiny_training_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using test_support::kGoodRate;
using test_support::session_options;
using test_support::TemporaryDirectory;
using test_support::TinyTraining;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

SessionOptions sampled_options(const std::string& out_dir) {
  SessionOptions options = session_options(out_dir);
  options.system_metrics.emplace().interval_ms = 100;
  return options;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(SystemMetrics, GoIntoTheNextStepThatIsSaved) {
  const TemporaryDirectory directory;
  const double before_s = static_cast<double>(wall_time_ns()) * 1e-9;
  TinyTraining training(sampled_options(directory.path("run")));
  sleep_ms(350);
  training.train(3, kGoodRate);
  training.session().close();

  const auto trial = Trial::open(directory.path("run"));
  EXPECT_THAT(trial->tensor_steps("system/time"), ElementsAre(0));  // all at once, nothing later
  const auto times = trial->value("system/time", 0);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->layout.dtype, DType::kFloat64);
  ASSERT_EQ(times->layout.shape.size(), 1u);
  EXPECT_GE(times->layout.shape[0], 2);
  const auto row = trial->row("system/time", 0);
  EXPECT_GE(row->statistics.min, before_s);
  EXPECT_LT(row->statistics.max, before_s + 60.0);
  const auto cores = trial->value("system/cpu_utilization", 0);
  ASSERT_TRUE(cores);
  EXPECT_EQ(cores->layout.dtype, DType::kFloat32);
  EXPECT_THAT(cores->layout.shape, ElementsAre(times->layout.shape[0], testing::Ge(1)));
  TensorFilter filter;
  filter.collection = "system";
  EXPECT_THAT(trial->tensor_names(filter), Contains("system/memory_used"));
  EXPECT_THAT(trial->tensor_names(filter), Not(Contains("loss_output_0")));
}

TEST(SystemMetrics, WaitWhileNothingIsSavedAndGoIntoTheLastStepAtTheEnd) {
  const TemporaryDirectory directory;
  SessionOptions options = sampled_options(directory.path("run"));
  SaveConfigMode rarely;
  rarely.save_interval = 1000;
  options.recorder.save_config = SaveConfig::for_all_modes(rarely);
  TinyTraining training(options);
  training.train(1, kGoodRate);
  for (int i = 0; i < 4; ++i) {
    sleep_ms(300);
    training.train(1, kGoodRate);
  }
  training.session().close();
  const auto trial = Trial::open(directory.path("run"));
  EXPECT_THAT(trial->steps(), ElementsAre(0, 4));
  EXPECT_THAT(trial->tensor_steps("system/time"), ElementsAre(4));
}

TEST(SystemMetrics, MakeNoShortRunLonger) {
  const TemporaryDirectory directory;
  TinyTraining training(sampled_options(directory.path("run")));
  training.train(2, kGoodRate);
  sleep_ms(250);
  training.session().close();
  EXPECT_THAT(Trial::open(directory.path("run"))->steps(), ElementsAre(0, 1));
}

TEST(SystemMetrics, AreOffByDefaultAndInADryRun) {
  const TemporaryDirectory directory;
  SessionOptions options = sampled_options(directory.path("dry"));
  options.recorder.dry_run = true;
  TinyTraining dry(options);
  EXPECT_EQ(dry.session().recorder().collections().find("system"), nullptr);
  TinyTraining plain(session_options(directory.path("plain")));
  EXPECT_EQ(plain.session().recorder().collections().find("system"), nullptr);
}

TEST(SystemMetrics, AMachineThatSaysNothingHarmsNothing) {
  const TemporaryDirectory directory;
  SessionOptions options = sampled_options(directory.path("run"));
  options.system_metrics->proc_root = "/no/such/place";
  options.system_metrics->gpu_library = "no-such-library.so";
  TinyTraining training(options);
  sleep_ms(250);
  EXPECT_EQ(training.train(2, kGoodRate), 2);
  training.session().close();
  const auto trial = Trial::open(directory.path("run"));
  TensorFilter filter;
  filter.collection = "system";
  EXPECT_THAT(trial->tensor_names(filter), ElementsAre("system/time"));
}

TEST(SystemMetrics, AForkedChildLeavesThemAlone) {
  const TemporaryDirectory directory;
  TinyTraining training(sampled_options(directory.path("run")));
  sleep_ms(150);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);  // a child that hangs is a failure
    training.train(3, kGoodRate);
    training.session().close();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  training.train(1, kGoodRate);
  training.session().close();
  EXPECT_THAT(Trial::open(directory.path("run"))->tensor_steps("system/time"), ElementsAre(0));
}

TEST(SystemMetrics, ABadIntervalLeavesNoRunBehind) {
  const TemporaryDirectory directory;
  SessionOptions options = sampled_options(directory.path("run"));
  options.system_metrics->interval_ms = 5;
  EXPECT_THROW(Session(options, CollectionSet()), Error);
  EXPECT_FALSE(std::filesystem::exists(directory.path("run")));
}

}  // namespace
}  // namespace tensortap
