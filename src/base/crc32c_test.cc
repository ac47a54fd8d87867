#include "base/crc32c.h"

#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The definition, bit by bit.
std::uint32_t reference(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78 : 0);
    }
  }
  return ~state;
}

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937 generator(1);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator());
  return bytes;
}

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
  // RFC 3720, B.4
  const std::vector<std::byte> zeros(32, std::byte{0});
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
  const std::vector<std::byte> ones(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(ones), 0x62A8AB43U);
}

// Lengths on both sides of every stride and every alignment of the start.
TEST(Crc32c, AgreesWithTheDefinition) {
  const std::vector<std::byte> bytes = random_bytes(30'000);
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 767, 768, 769, 775, 776, 1535, 1536, 12287,
                                 12288, 12289, 13056, 24576, 29'990}) {
    for (std::size_t start = 0; start < 8; ++start) {
      const auto part = std::span(bytes).subspan(start, size);
      const std::uint32_t expected = reference(part);
      ASSERT_EQ(crc32c(part), expected) << size << " bytes from " << start;
      ASSERT_EQ(crc32c_extend_portable(0, part), expected) << size << " bytes from " << start;
    }
  }
}

TEST(Crc32c, ContinuesAtEveryByte) {
  const std::vector<std::byte> bytes = random_bytes(1'700);
  const auto all = std::span(bytes);
  const std::uint32_t expected = reference(all);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    ASSERT_EQ(crc32c_extend(crc32c(all.first(cut)), all.subspan(cut)), expected) << cut;
    ASSERT_EQ(crc32c_extend_portable(crc32c(all.first(cut)), all.subspan(cut)), expected) << cut;
  }
}

}  // namespace
}  // namespace tensortap
