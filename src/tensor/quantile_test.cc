#include "tensor/quantile.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compute_statistics.h"

namespace tensortap {
namespace {

std::optional<double> quantile(const std::vector<double>& values, double q) {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(values.size())};
  Statistics statistics;
  Histogram histogram;
  compute_statistics({values.data(), DType::kFloat64, shape, {}}, statistics, &histogram);
  return approximate_quantile(statistics, histogram, q);
}

TEST(Quantile, IsWithinABucketOfTheTruth) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0.5, 2.0);
  std::vector<double> values(10'001);
  for (double& value : values) value = normal(random);
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  for (const double q : {0.01, 0.25, 0.5, 0.75, 0.9, 0.99}) {
    const double truth = sorted[static_cast<std::size_t>(q * 10'000)];
    EXPECT_NEAR(*quantile(values, q), truth, 0.12 * std::abs(truth) + 0.02) << q;
  }
}

TEST(Quantile, ExtremesZerosAndNothing) {
  EXPECT_EQ(quantile({3.0, -1.0, 7.0}, 0.0), -1.0);
  EXPECT_EQ(quantile({3.0, -1.0, 7.0}, 1.0), 7.0);
  EXPECT_EQ(quantile({0.0, 0.0, 0.0, 5.0, -5.0}, 0.5), 0.0);
  EXPECT_EQ(quantile({2.0, 2.0, 2.0}, 0.3), 2.0);
  EXPECT_EQ(quantile({}, 0.5), std::nullopt);
  EXPECT_EQ(quantile({std::nan("")}, 0.5), std::nullopt);
}

}  // namespace
}  // namespace tensortap
