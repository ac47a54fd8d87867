#include "base/bytes.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Bytes to_bytes(const ByteBuffer& buffer) { return {buffer.bytes().begin(), buffer.bytes().end()}; }

TEST(ByteBuffer, IsLittleEndian) {
  ByteBuffer out;
  out.put(std::uint32_t{0x01020304});
  out.put(std::int16_t{-2});
  out.put(1.0F);
  EXPECT_EQ(to_bytes(out), bytes_of({4, 3, 2, 1, 0xFE, 0xFF, 0, 0, 0x80, 0x3F}));
}

TEST(ByteBuffer, VarintsAreLeb128) {
  ByteBuffer out;
  out.put_varint(0);
  out.put_varint(127);
  out.put_varint(128);
  out.put_varint(300);
  EXPECT_EQ(to_bytes(out), bytes_of({0, 0x7F, 0x80, 0x01, 0xAC, 0x02}));
  out.clear();
  out.put_varint(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(to_bytes(out), bytes_of({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}));
}

TEST(ByteBuffer, PadsWithZerosToTheAlignmentAndNoFurther) {
  ByteBuffer out;
  out.append("\x01\x02\x03");
  out.pad_to(8);
  EXPECT_EQ(to_bytes(out), bytes_of({1, 2, 3, 0, 0, 0, 0, 0}));
  out.pad_to(8);
  EXPECT_EQ(out.size(), 8U);
}

TEST(ByteReader, ReadsBackEveryVarintLength) {
  ByteBuffer out;
  for (int bit = 0; bit < 64; ++bit) {
    out.put_varint(std::uint64_t{1} << bit);
    out.put_varint((std::uint64_t{1} << bit) - 1);
  }
  ByteReader reader(out.bytes());
  std::uint64_t value = 0;
  for (int bit = 0; bit < 64; ++bit) {
    ASSERT_TRUE(reader.get_varint(value));
    EXPECT_EQ(value, std::uint64_t{1} << bit);
    ASSERT_TRUE(reader.get_varint(value));
    EXPECT_EQ(value, (std::uint64_t{1} << bit) - 1);
  }
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteReader, ReadsStringsWithAnyBytes) {
  ByteBuffer out;
  const std::string text("a\0\xFF", 3);
  out.put_string(text);
  out.put_string("");
  ByteReader reader(out.bytes());
  std::string_view read;
  ASSERT_TRUE(reader.get_string(read));
  EXPECT_EQ(read, text);
  ASSERT_TRUE(reader.get_string(read));
  EXPECT_EQ(read, "");
}

// A failed read must change neither the output nor the position.
TEST(ByteReader, FailedReadsLeaveEverythingAsItWas) {
  const Bytes bytes = bytes_of({0x05, 'a', 'b', 0x80});
  ByteReader reader(bytes);
  std::string_view text = "before";
  EXPECT_FALSE(reader.get_string(text)) << "5 bytes promised, 3 there";
  EXPECT_EQ(text, "before");
  EXPECT_EQ(reader.position(), 0U);

  std::uint64_t number = 7;
  EXPECT_FALSE(reader.get(number));
  EXPECT_FALSE(reader.skip(5));
  std::span<const std::byte> body;
  EXPECT_FALSE(reader.get_bytes(std::numeric_limits<std::size_t>::max(), body));
  EXPECT_EQ(reader.position(), 0U);

  ASSERT_TRUE(reader.skip(3));
  EXPECT_FALSE(reader.get_varint(number)) << "cut off in the middle";
  EXPECT_EQ(number, 7U);
  EXPECT_EQ(reader.position(), 3U);
}

TEST(ByteReader, RefusesVarintsBeyond64Bits) {
  std::uint64_t value = 0;
  const Bytes too_large = bytes_of({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02});
  EXPECT_FALSE(ByteReader(too_large).get_varint(value));
  const Bytes too_long = bytes_of({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0});
  EXPECT_FALSE(ByteReader(too_long).get_varint(value));
}

}  // namespace
}  // namespace tensortap
