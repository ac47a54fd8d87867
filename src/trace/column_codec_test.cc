#include "trace/column_codec.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace tensortap::trace {
namespace {

template <class T>
std::vector<T> round_trip(const std::vector<T>& values, Encoding& encoding) {
  encoding = choose_encoding(std::span<const T>(values));
  ByteBuffer bytes;
  encode_values(std::span<const T>(values), encoding, bytes);
  EXPECT_EQ(bytes.size(), encoded_size(encoding, values.size()));
  ColumnView view;
  EXPECT_TRUE(
      make_column_view(static_cast<std::uint8_t>(encoding), bytes.bytes(), values.size(), view));
  std::vector<T> out(values.size());
  view.visit(0, values.size(), [&](std::size_t i, auto value) { out[i] = static_cast<T>(value); });
  return out;
}

TEST(ColumnCodecTest, IntegersTakeTheNarrowestType) {
  const std::pair<std::uint64_t, Encoding> cases[] = {
      {0xFF, Encoding::kU8},        {0x100, Encoding::kU16},      {0xFFFF, Encoding::kU16},
      {0x10000, Encoding::kU32},    {0xFFFFFFFF, Encoding::kU32}, {0x100000000, Encoding::kU64},
      {UINT64_MAX, Encoding::kU64},
  };
  for (const auto& [largest, expected] : cases) {
    const std::vector<std::uint64_t> values = {1, largest, 0};
    Encoding encoding;
    EXPECT_EQ(round_trip(values, encoding), values);
    EXPECT_EQ(encoding, expected) << largest;
  }
  Encoding encoding;
  EXPECT_EQ(round_trip<std::uint64_t>({7, 7, 7}, encoding).back(), 7u);
  EXPECT_EQ(encoding, Encoding::kConstantU64);
}

// Long enough for vector code, with the one value that float cannot hold at every place in turn.
TEST(ColumnCodecTest, OneValueThatIsNoFloatKeepsTheColumnDouble) {
  std::vector<double> values(67);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5 * static_cast<double>(i);
  Encoding encoding;
  EXPECT_EQ(round_trip(values, encoding), values);
  EXPECT_EQ(encoding, Encoding::kF32);
  for (const double odd : {0.1, 1e300, -1e-300, std::nextafter(1.0, 2.0)}) {
    for (std::size_t at = 0; at < values.size(); ++at) {
      std::vector<double> changed = values;
      changed[at] = odd;
      ASSERT_EQ(round_trip(changed, encoding), changed);
      ASSERT_EQ(encoding, Encoding::kF64);
    }
  }
}

TEST(ColumnCodecTest, SpecialNumbersKeepTheirBits) {
  const std::vector<double> values = {
      0.0,
      -0.0,
      std::numeric_limits<double>::infinity(),
      -std::numeric_limits<double>::infinity(),
      std::numeric_limits<double>::quiet_NaN(),
      std::bit_cast<double>(std::uint64_t{0x7FF8000000000001}),  // a NaN payload that float loses
      std::bit_cast<double>(std::uint64_t{0xFFF4000000000000}),  // a signaling NaN
  };
  for (std::size_t size = 1; size <= values.size(); ++size) {
    const std::vector<double> head(values.begin(),
                                   values.begin() + static_cast<std::ptrdiff_t>(size));
    Encoding encoding;
    const std::vector<double> back = round_trip(head, encoding);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(back[i]), std::bit_cast<std::uint64_t>(head[i]));
    }
  }
}

TEST(ColumnCodecTest, SizesThatDoNotFitAreRefused) {
  const std::vector<std::byte> bytes(16);
  ColumnView view;
  EXPECT_TRUE(make_column_view(5, bytes, 2, view));
  EXPECT_FALSE(make_column_view(5, bytes, 3, view));
  EXPECT_FALSE(make_column_view(0, bytes, 2, view));
  EXPECT_FALSE(make_column_view(8, bytes, 2, view));
  EXPECT_FALSE(make_column_view(2, {}, 0, view));
}

}  // namespace
}  // namespace tensortap::trace
