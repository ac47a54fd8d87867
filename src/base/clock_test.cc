#include "base/clock.h"

#include <chrono>
#include <ctime>
#include <thread>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

TEST(Clock, WallTimeIsNanosecondsSinceTheEpoch) {
  const auto before_s = static_cast<std::int64_t>(std::time(nullptr));
  const std::int64_t now_s = wall_time_ns() / 1'000'000'000;
  EXPECT_GE(now_s, before_s - 1);
  EXPECT_LE(now_s, before_s + 60);
}

TEST(Clock, MonotonicTimeCountsNanoseconds) {
  const std::int64_t start = monotonic_time_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::int64_t elapsed = monotonic_time_ns() - start;
  EXPECT_GE(elapsed, 5'000'000);
  EXPECT_LT(elapsed, 5'000'000'000);
}

}  // namespace
}  // namespace tensortap
