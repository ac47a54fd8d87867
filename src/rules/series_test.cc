#include "rules/series.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

TEST(RollingWindow, AgreesWithSortingAtEachPush) {
  std::mt19937 random(5);
  for (const std::size_t capacity : {1u, 2u, 7u, 20u}) {
    RollingWindow window(capacity);
    std::vector<double> all;
    for (int i = 0; i < 200; ++i) {
      all.push_back(static_cast<double>(random() % 12));  // many equal ones
      window.push(all.back());
      const std::vector<double> newest(all.end() - static_cast<std::ptrdiff_t>(window.size()),
                                       all.end());
      ASSERT_EQ(window.size(), std::min(all.size(), capacity));
      ASSERT_EQ(window[0], newest.front());
      ASSERT_EQ(window[window.size() - 1], newest.back());
      ASSERT_EQ(window.minimum(), *std::min_element(newest.begin(), newest.end()));
      ASSERT_EQ(window.maximum(), *std::max_element(newest.begin(), newest.end()));
      const double median = median_of(newest);
      ASSERT_DOUBLE_EQ(window.median(), median);
      std::vector<double> deviations;
      for (const double value : newest) deviations.push_back(std::abs(value - median));
      ASSERT_DOUBLE_EQ(window.mad(), median_of(deviations)) << capacity << " at " << i;
    }
  }
}

TEST(RollingWindow, QuantilesMeanAndDeviation) {
  RollingWindow window(4);
  for (const double value : {9.0, 4.0, 1.0, 3.0, 2.0}) window.push(value);  // 9 has gone
  EXPECT_DOUBLE_EQ(window.quantile(0.0), 1.0);
  EXPECT_DOUBLE_EQ(window.quantile(0.9), 3.7);  // as numpy.quantile([1, 2, 3, 4], .9)
  EXPECT_DOUBLE_EQ(window.quantile(1.0), 4.0);
  EXPECT_DOUBLE_EQ(window.mean(), 2.5);
  EXPECT_DOUBLE_EQ(window.standard_deviation(), std::sqrt(1.25));
  window.clear();
  EXPECT_EQ(window.size(), 0u);
  window.push(7.0);
  EXPECT_EQ(window[0], 7.0);
}

// 8.1: constant 1.0 with 1.05 gives 3.3, with 1.10 gives 6.4, under a floor of 0.01.
TEST(RollingWindow, RobustZUsesTheFloor) {
  RollingWindow window(100);
  for (int i = 0; i < 80; ++i) window.push(std::log(1.0));
  EXPECT_NEAR(window.robust_z(std::log(1.05), 0.01), 3.3, 0.05);
  EXPECT_NEAR(window.robust_z(std::log(1.10), 0.01), 6.4, 0.05);
}

TEST(MovingAverage, BeginsWithTheFirstValue) {
  MovingAverage average(0.9);
  average.push(10.0);
  EXPECT_DOUBLE_EQ(average.value(), 10.0);
  average.push(0.0);
  EXPECT_DOUBLE_EQ(average.value(), 9.0);
  EXPECT_EQ(average.count(), 2u);
}

TEST(Persistence, TellsOncePerEpisode) {
  Persistence persistence;
  EXPECT_FALSE(persistence.tell(true, 2, true));
  EXPECT_TRUE(persistence.tell(true, 2, true));
  EXPECT_FALSE(persistence.tell(true, 2, true));
  EXPECT_FALSE(persistence.tell(false, 2, true));
  EXPECT_FALSE(persistence.tell(true, 2, true));
  EXPECT_TRUE(persistence.tell(true, 2, true));
}

TEST(Persistence, TellsLaterWhatItCouldNotTell) {
  Persistence persistence;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(persistence.tell(true, 2, false));
  EXPECT_TRUE(persistence.tell(true, 2, true));
}

// 8.2: norms 1.0 with 10 % ripple; 2.5 lies below three medians, 3.1 above.
TEST(NormHistory, AsksForTheRatioToo) {
  const auto after_ripple = [](double norm) {
    NormHistory history;
    for (int i = 0; i < 150; ++i) EXPECT_FALSE(history.judge(i % 2 == 0 ? 0.9 : 1.1));
    return history.judge(norm).has_value();
  };
  EXPECT_FALSE(after_ripple(2.5));
  EXPECT_TRUE(after_ripple(3.1));
  EXPECT_FALSE(after_ripple(0.0));
  EXPECT_FALSE(after_ripple(std::nan("")));
}

TEST(NormHistory, SpikesDoNotBecomeTheNorm) {
  NormHistory history;
  for (int i = 0; i < 30; ++i) history.judge(1.0);
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(history.judge(5.0));
}

// 8.1: 2000 points N(1, .05), three of 2.0 among the last thousand: 3 of 1000.
TEST(SpikeScore, CountsAsTheVectorSays) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(1.0, 0.05);
  SpikeScore score;
  for (int i = 0; i < 2000; ++i) {
    score.push(i == 1200 || i == 1500 || i == 1900 ? 2.0 : normal(random));
  }
  EXPECT_EQ(score.spikes(), 3u);
  EXPECT_EQ(score.judged(), 1000u);
}

TEST(FitLine, FindsSlopeAndHowGoodItIs) {
  const std::vector<double> x = {0, 1, 2, 3};
  const std::vector<double> straight = {1, 3, 5, 7};
  EXPECT_DOUBLE_EQ(fit_line(x, straight).slope, 2.0);
  EXPECT_DOUBLE_EQ(fit_line(x, straight).intercept, 1.0);
  EXPECT_DOUBLE_EQ(fit_line(x, straight).r_squared, 1.0);
  const std::vector<double> constant = {2, 2, 2, 2};
  EXPECT_DOUBLE_EQ(fit_line(x, constant).r_squared, 0.0);
  const std::vector<double> zigzag = {0, 1, 0, 1};
  EXPECT_DOUBLE_EQ(fit_line(x, zigzag).r_squared, 0.2);
}

}  // namespace
}  // namespace tensortap
