#include "rules/closeness.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compute_statistics.h"

namespace tensortap {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool are_close(std::vector<double> old, std::vector<double> now, const Tolerance& tolerance = {}) {
  return compare_elements(old, now, tolerance).is_close;
}

Statistics statistics_of(const std::vector<double>& values) {
  Statistics statistics;
  const std::array shape = {static_cast<std::int64_t>(values.size())};
  compute_statistics({values.data(), DType::kFloat64, shape, {}}, statistics, nullptr);
  return statistics;
}

// numpy.allclose(now, old) with the same numbers: |old - now| <= atol + rtol * |now|.
TEST(Closeness, IsNumpysAllclose) {
  EXPECT_TRUE(are_close({1.0}, {1.00000999}));
  EXPECT_FALSE(are_close({1.0}, {1.0000111}));
  EXPECT_TRUE(are_close({0.0}, {1e-8}));
  EXPECT_FALSE(are_close({0.0}, {1.1e-8}));
  EXPECT_TRUE(are_close({kInfinity, -kInfinity}, {kInfinity, -kInfinity}));
  EXPECT_FALSE(are_close({kInfinity}, {-kInfinity}));
  EXPECT_FALSE(are_close({kInfinity}, {1e308}));
  EXPECT_FALSE(are_close({kNan}, {kNan}));
  EXPECT_TRUE(are_close({kNan}, {kNan}, {.equal_nan = true}));
  EXPECT_FALSE(are_close({kNan}, {1.0}, {.equal_nan = true}));
}

TEST(Closeness, TellsTheLargestDifferences) {
  const std::vector<double> old = {1.0, 100.0, kNan};
  const std::vector<double> now = {1.5, 101.0, 1.0};
  const Difference difference = compare_elements(old, now, {});
  EXPECT_FALSE(difference.is_close);
  EXPECT_DOUBLE_EQ(difference.max_absolute, 1.0);
  EXPECT_DOUBLE_EQ(difference.max_relative, 0.5 / 1.5);
}

// Statistics of close tensors are never told apart, whatever the tensors.
TEST(Closeness, StatisticsNeverContradictCloseElements) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0.0, 1.0);
  std::uniform_real_distribution<double> nudge(-1.0, 1.0);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> now(50), old(50);
    const double scale = std::pow(10.0, nudge(random) * 3);
    for (std::size_t i = 0; i < now.size(); ++i) {
      now[i] = scale * normal(random);
      old[i] = now[i] + nudge(random) * (1e-8 + 1e-5 * std::abs(now[i]));
    }
    ASSERT_TRUE(are_close(old, now));
    EXPECT_TRUE(compare_statistics(statistics_of(old), statistics_of(now), {}).is_close);
    old[7] += 0.01 * scale;
    EXPECT_FALSE(compare_statistics(statistics_of(old), statistics_of(now), {}).is_close);
  }
}

}  // namespace
}  // namespace tensortap
