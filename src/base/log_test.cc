#include "base/log.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override { set_log_sink({}); }
};

TEST_F(LogTest, DefaultWritesWarningsAndErrorsOnly) {
  testing::internal::CaptureStderr();
  log(LogLevel::kDebug, "one");
  log(LogLevel::kInfo, "two");
  log(LogLevel::kWarning, "three {}");
  log(LogLevel::kError, "four");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tensortap: warning: three {}\ntensortap: error: four\n");
}

TEST_F(LogTest, SinkGetsEverythingAndTheEmptyOneRestoresTheDefault) {
  std::vector<std::string> seen;
  set_log_sink([&](LogLevel, std::string_view message) { seen.emplace_back(message); });
  testing::internal::CaptureStderr();
  log(LogLevel::kDebug, "quiet");
  log(LogLevel::kError, "loud");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(seen, (std::vector<std::string>{"quiet", "loud"}));

  set_log_sink({});
  testing::internal::CaptureStderr();
  log(LogLevel::kError, "again");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tensortap: error: again\n");
  EXPECT_EQ(seen.size(), 2U);
}

TEST_F(LogTest, SinkMayThrowOrLogItself) {
  int calls = 0;
  set_log_sink([&](LogLevel level, std::string_view) {
    ++calls;
    if (level == LogLevel::kError) log(LogLevel::kInfo, "from inside");
    throw std::runtime_error("broken sink");
  });
  log(LogLevel::kError, "outer");
  EXPECT_EQ(calls, 2);
}

TEST_F(LogTest, SinkMayBeReplacedWhileOthersLog) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 2'000; ++k) log(LogLevel::kInfo, "message");
    });
  }
  for (int k = 0; k < 2'000; ++k) {
    set_log_sink([owned = std::string(64, 'x')](LogLevel, std::string_view) {
      EXPECT_EQ(owned.size(), 64U) << "the sink must live as long as a call of it";
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tensortap
