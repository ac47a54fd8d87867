#include "base/bounded_queue.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

using std::chrono::milliseconds;

TEST(BoundedQueue, CountsBytes) {
  BoundedQueue<int> queue(10);
  EXPECT_TRUE(queue.try_push(1, 6));
  EXPECT_FALSE(queue.try_push(2, 5));
  EXPECT_TRUE(queue.try_push(3, 4));
  EXPECT_EQ(queue.size_bytes(), 10U);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.size_bytes(), 4U);
  EXPECT_EQ(queue.pop(), 3);
  EXPECT_EQ(queue.size_bytes(), 0U);
}

TEST(BoundedQueue, LetsALargeItemIntoAnEmptyQueueOnly) {
  BoundedQueue<int> queue(10);
  EXPECT_TRUE(queue.try_push(1, 100));
  EXPECT_FALSE(queue.try_push(2, 1));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_TRUE(queue.try_push(2, 1));
  EXPECT_FALSE(queue.try_push(3, 100));
}

TEST(BoundedQueue, DrainsAfterClosing) {
  BoundedQueue<std::unique_ptr<int>> queue(10);
  ASSERT_TRUE(queue.push(std::make_unique<int>(1), 1));
  queue.close();
  EXPECT_FALSE(queue.push(std::make_unique<int>(2), 1));
  EXPECT_FALSE(queue.try_push(std::make_unique<int>(2), 1));
  EXPECT_FALSE(queue.is_drained());
  EXPECT_EQ(*queue.pop().value(), 1);
  EXPECT_TRUE(queue.is_drained());
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, PopForGivesUp) {
  BoundedQueue<int> queue(10);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(queue.pop_for(milliseconds(20)), std::nullopt);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(20));
  EXPECT_FALSE(queue.is_drained()) << "empty is not closed";
}

TEST(BoundedQueue, CloseWakesProducerAndConsumer) {
  BoundedQueue<int> full(1);
  ASSERT_TRUE(full.push(1, 1));
  BoundedQueue<int> empty(1);
  std::thread producer([&] { EXPECT_FALSE(full.push(2, 1)); });
  std::thread consumer([&] { EXPECT_EQ(empty.pop(), std::nullopt); });
  std::this_thread::sleep_for(milliseconds(10));
  full.close();
  empty.close();
  producer.join();
  consumer.join();
  EXPECT_EQ(full.pop(), 1);
}

// Nothing lost, nothing twice, each producer's order kept, never more bytes than the capacity.
TEST(BoundedQueue, ManyProducersOneConsumer) {
  constexpr int kProducers = 3;
  constexpr int kItems = 5'000;
  BoundedQueue<std::pair<int, int>> queue(64);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) {
        ASSERT_TRUE(queue.push({p, i}, static_cast<std::size_t>(1 + i % 16)));
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  for (int n = 0; n < kProducers * kItems; ++n) {
    EXPECT_LE(queue.size_bytes(), 64U);
    const auto item = queue.pop();
    ASSERT_TRUE(item.has_value());
    ASSERT_EQ(item->second, next[static_cast<std::size_t>(item->first)]++);
  }
  for (std::thread& producer : producers) producer.join();
  queue.close();
  EXPECT_EQ(queue.pop(), std::nullopt);
}

}  // namespace
}  // namespace tensortap
