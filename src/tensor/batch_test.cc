// Sharing work among threads: the results must not show it.

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "tensor/compute_statistics.h"

namespace tensortap {
namespace {

struct Results {
  std::vector<Statistics> statistics;
  std::vector<Histogram> histograms;
};

void expect_identical(const Results& a, const Results& b) {
  for (std::size_t i = 0; i < a.statistics.size(); ++i) {
    EXPECT_EQ(std::memcmp(&a.statistics[i], &b.statistics[i], sizeof(Statistics)), 0) << i;
    EXPECT_EQ(a.histograms[i].top, b.histograms[i].top) << i;
    EXPECT_EQ(a.histograms[i].counts, b.histograms[i].counts) << i;
  }
}

class Batch : public testing::Test {
 protected:
  Batch() {
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0.0f, 0.1f);
    for (const std::int64_t n :
         {0, 1, 3'000'001, 64, 5, 700'000, 0, 200, 16'384, 524'288, 1'000'000}) {
      extents_.push_back(n);
      std::vector<float>& x = tensors_.emplace_back(static_cast<std::size_t>(n));
      for (float& v : x) v = normal(random);
    }
    for (int i = 0; i < 700; ++i) {  // more than one pack
      extents_.push_back(1 + i * 3);
      tensors_.emplace_back(static_cast<std::size_t>(1 + i * 3), static_cast<float>(i));
    }
  }
  TensorView view(std::size_t i) const {
    return {tensors_[i].data(), DType::kFloat32, {&extents_[i], 1}, {}};
  }
  Results empty() const {
    return {std::vector<Statistics>(tensors_.size()), std::vector<Histogram>(tensors_.size())};
  }
  Results one_by_one(ThreadPool* pool) const {
    Results results = empty();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      compute_statistics(view(i), results.statistics[i], &results.histograms[i], pool);
    }
    return results;
  }
  Results batch(ThreadPool* pool) const {
    Results results = empty();
    std::vector<StatisticsTask> tasks;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tasks.push_back({view(i), &results.statistics[i], &results.histograms[i]});
    }
    compute_statistics_batch(tasks, pool);
    return results;
  }

  std::vector<std::int64_t> extents_;
  std::vector<std::vector<float>> tensors_;
};

TEST_F(Batch, results_are_bit_identical_for_any_number_of_threads) {
  const Results want = one_by_one(nullptr);
  EXPECT_EQ(want.statistics[2].count, 3'000'001u);
  expect_identical(batch(nullptr), want);
  for (const std::size_t threads : {0u, 1u, 3u, 8u}) {
    SCOPED_TRACE(threads);
    ThreadPool pool(threads);
    expect_identical(one_by_one(&pool), want);
    expect_identical(batch(&pool), want);
  }
}

TEST_F(Batch, an_empty_batch_is_nothing) {
  ThreadPool pool(2);
  compute_statistics_batch({}, &pool);
  compute_statistics_batch({}, nullptr);
}

TEST_F(Batch, histograms_are_optional_for_each_tensor) {
  ThreadPool pool(2);
  Statistics with, without;
  Histogram histogram;
  const std::vector<StatisticsTask> tasks = {{view(2), &without, nullptr},
                                             {view(2), &with, &histogram}};
  compute_statistics_batch(tasks, &pool);
  EXPECT_EQ(std::memcmp(&with, &without, sizeof with), 0);
  std::uint64_t binned = 0;
  for (const std::uint64_t count : histogram.counts) binned += count;
  EXPECT_EQ(binned, with.finite_count() - with.zero_count);
}

}  // namespace
}  // namespace tensortap
