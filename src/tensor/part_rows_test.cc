// Rows as a device would fill them, for numbers that are also in host memory: merged, they say what
// compute_statistics says of all the numbers together.
#include "tensor/part_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compute_statistics.h"

namespace tensortap {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Statistics of_host(const std::vector<double>& numbers, Histogram* histogram) {
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(numbers.size())};
  Statistics statistics;
  compute_statistics({numbers.data(), DType::kFloat64, shape, {}}, statistics, histogram);
  return statistics;
}

struct Rows {
  std::vector<double> statistics;
  std::vector<std::int32_t> histograms;

  void add(const std::vector<double>& numbers) {
    Histogram histogram;
    const Statistics s = of_host(numbers, &histogram);
    const auto n = static_cast<double>(s.finite_count());
    const std::array<std::uint64_t, 8> counts = {
        s.finite_count(), s.nan_count,       s.positive_inf_count, s.negative_inf_count,
        s.zero_count,     s.subnormal_count, s.overflow_count,     s.underflow_count};
    for (const std::uint64_t count : counts) statistics.push_back(static_cast<double>(count));
    statistics.insert(statistics.end(), {s.min, s.max, s.abs_min, s.mean, s.variance * n,
                                         s.abs_mean, s.abs_variance * n});
    for (const std::uint64_t count : histogram.counts) {
      histograms.push_back(static_cast<std::int32_t>(count));
    }
  }
  PartRows part(std::size_t padding = 0) const {
    return {statistics.data(), histograms.data(), statistics.size() / kPartColumns, padding};
  }
};

TEST(PartRows, SayWhatTheNumbersTogetherSay) {
  const std::vector<double> first = {1.5, -300.0, 0.0, 1e-30, INFINITY};
  const std::vector<double> second = {70000.0, -0.0, kNaN, 5e-324};
  const std::vector<double> third = {-INFINITY, 2.0, 2.0, 1e-9};
  Rows one, two;
  one.add(first);
  one.add(second);
  two.add(third);
  std::vector<double> all = first;
  all.insert(all.end(), second.begin(), second.end());
  all.insert(all.end(), third.begin(), third.end());

  Histogram histogram, expected_histogram;
  Statistics s;
  merge_parts(std::vector<PartRows>{one.part(), two.part()}, s, &histogram);
  const Statistics expected = of_host(all, &expected_histogram);
  EXPECT_EQ(s.count, 13u);
  EXPECT_EQ(s.nan_count, 1u);
  EXPECT_EQ(s.positive_inf_count, 1u);
  EXPECT_EQ(s.negative_inf_count, 1u);
  EXPECT_EQ(s.zero_count, 2u);
  EXPECT_EQ(s.subnormal_count, 1u);
  EXPECT_EQ(s.overflow_count, 1u);
  EXPECT_EQ(s.underflow_count, 3u);
  EXPECT_EQ(s.min, -300.0);
  EXPECT_EQ(s.max, 70000.0);
  EXPECT_EQ(s.abs_min, 0.0);
  EXPECT_DOUBLE_EQ(s.mean, expected.mean);
  EXPECT_DOUBLE_EQ(s.variance, expected.variance);
  EXPECT_DOUBLE_EQ(s.abs_mean, expected.abs_mean);
  EXPECT_DOUBLE_EQ(s.abs_variance, expected.abs_variance);
  EXPECT_EQ(histogram.top, expected_histogram.top);
  EXPECT_EQ(histogram.counts, expected_histogram.counts);
}

TEST(PartRows, PaddingIsNoElement) {
  Rows rows;
  rows.add({1.0, 2.0, kNaN, kNaN, kNaN});
  Statistics s;
  merge_parts(std::vector<PartRows>{rows.part(2)}, s, nullptr);
  EXPECT_EQ(s.count, 3u);
  EXPECT_EQ(s.nan_count, 1u);
}

TEST(PartRows, NothingIsEmpty) {
  Statistics s;
  Histogram histogram;
  histogram.counts[3] = 7;
  merge_parts({}, s, &histogram);
  EXPECT_EQ(s.count, 0u);
  EXPECT_TRUE(std::isnan(s.mean));
  EXPECT_EQ(histogram.counts[3], 0u);
}

TEST(PartRows, NonsenseDoesNoHarm) {
  std::vector<double> row(kPartColumns, kNaN);
  row[static_cast<std::size_t>(PartColumn::kFinite)] = 1e300;
  row[static_cast<std::size_t>(PartColumn::kZero)] = -5.0;
  const std::vector<std::int32_t> counts(Histogram::kBucketCount, -1);
  const PartRows part = {row.data(), counts.data(), 1, 9};
  Statistics s;
  Histogram histogram;
  merge_parts(std::vector<PartRows>{part}, s, &histogram);
  EXPECT_EQ(s.finite_count(), std::uint64_t{1} << 53);
  EXPECT_EQ(s.zero_count, 0u);
  EXPECT_EQ(s.nan_count, 0u);
}

}  // namespace
}  // namespace tensortap
