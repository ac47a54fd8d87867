#include "monitor/sampler.h"

#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "monitor/proc_for_test.h"

namespace tensortap {
namespace {

SamplerOptions quick_options() {
  SamplerOptions options;
  options.interval_ms = 100;
  options.gpu_library = TENSORTAP_TEST_MODULES "/fake_gpu_module.so";
  return options;
}

void wait_for(const Sampler& sampler, std::size_t count) {
  for (int i = 0; i < 500 && sampler.pending() < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GE(sampler.pending(), count);
}

TEST(Sampler, SamplesInTheOrderOfTime) {
  const double before_s = static_cast<double>(wall_time_ns()) * 1e-9;
  Sampler sampler(quick_options());
  wait_for(sampler, 3);
  std::vector<Sample> samples;
  sampler.take(samples);
  EXPECT_EQ(sampler.pending(), 0u);
  ASSERT_GE(samples.size(), 3u);
  EXPECT_GE(samples[0].time_s, before_s);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    EXPECT_GT(samples[i].time_s, samples[i - 1].time_s + 0.02);
  }
  EXPECT_EQ(samples.back().of(Metric::kGpuUtilization).at(0), 37.0f);
  EXPECT_FALSE(samples.back().of(Metric::kCpuUtilization).empty());
}

TEST(Sampler, ThinsOutWhatNobodyTakes) {
  SamplerOptions options = quick_options();
  options.capacity = 4;
  Sampler sampler(options);
  std::this_thread::sleep_for(std::chrono::milliseconds(760));
  sampler.stop();
  std::vector<Sample> samples;
  sampler.take(samples);
  EXPECT_LE(samples.size(), 4u);
  ASSERT_GE(samples.size(), 3u);
  EXPECT_GT(samples.back().time_s - samples.front().time_s, 0.3);  // both ends are still there
}

TEST(Sampler, StopsAtOnce) {
  SamplerOptions options;
  options.interval_ms = 60000;
  Sampler sampler(options);
  wait_for(sampler, 1);
  const std::int64_t before_ns = monotonic_time_ns();
  sampler.stop();
  sampler.stop();
  EXPECT_LT(monotonic_time_ns() - before_ns, 1'000'000'000);
  EXPECT_EQ(sampler.pending(), 1u);
}

TEST(Sampler, DoesNothingInAForkedChild) {
  auto sampler = std::make_unique<Sampler>(quick_options());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);  // a child that hangs is a failure
    sampler->stop();
    sampler.reset();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  wait_for(*sampler, 1);  // the parent's goes on
}

TEST(Sampler, RefusesAnIntervalThatMakesNoSense) {
  SamplerOptions options;
  options.interval_ms = 99;
  EXPECT_THROW(Sampler{options}, Error);
  options.interval_ms = 60001;
  try {
    validate(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("100 to 60000 ms, not 60001"));
  }
}

}  // namespace
}  // namespace tensortap
