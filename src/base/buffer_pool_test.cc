#include "base/buffer_pool.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;

TEST(BufferPool, BuffersAreAlignedAndOfTheSizeAskedFor) {
  BufferPool pool(64 * kMib);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65}, std::size_t{1000},
                                 kMib + 3, 3 * kMib + 1, 9 * kMib - 1}) {
    const BufferPool::Buffer buffer = pool.acquire(size);
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(buffer.data.get()) % 64, 0U) << size;
    ASSERT_EQ(buffer.bytes().size(), size);
    std::memset(buffer.data.get(), 0x5A, size);  // the address sanitizer watches the end
  }
}

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool(kMib);
  auto first = pool.acquire(1000);
  const std::byte* const address = first.data.get();
  auto copy = first;
  first = {};
  const auto other = pool.acquire(1000);
  EXPECT_NE(other.data.get(), address) << "the copy still owns it";
  copy = {};
  EXPECT_EQ(pool.acquire(1000).data.get(), address);
}

TEST(BufferPool, BuffersOutliveThePool) {
  std::optional<BufferPool> pool(kMib);
  const BufferPool::Buffer buffer = pool->acquire(100);
  pool.reset();
  std::memset(buffer.data.get(), 1, 100);
  EXPECT_EQ(buffer.bytes()[99], std::byte{1});
}

TEST(BufferPool, IsSharedByThreads) {
  BufferPool pool(kMib);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (std::size_t i = 0; i < 1'000; ++i) {
        const auto buffer = pool.acquire(64 + i % 512);
        const auto mark = static_cast<std::byte>(t);
        std::memset(buffer.data.get(), t, buffer.size_bytes);
        EXPECT_EQ(buffer.bytes().front(), mark);
        EXPECT_EQ(buffer.bytes().back(), mark);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tensortap
