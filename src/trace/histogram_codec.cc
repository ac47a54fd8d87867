#include "trace/histogram_codec.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace tensortap::trace {
namespace {

constexpr std::size_t kMaxVarintSize = 10;
constexpr std::size_t kHistogramHeadSize = 10;  // top and mask
constexpr std::size_t kMaxHistogramSize =
    kHistogramHeadSize + Histogram::kBucketCount * kMaxVarintSize;

std::byte* write_varint(std::byte* out, std::uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::byte>(value);
  return out;
}

std::byte* write_histogram(const Histogram& histogram, std::byte* out) {
  std::uint64_t mask = 0;
  std::byte* head = out;
  out += kHistogramHeadSize;
  for (std::size_t bucket = 0; bucket < Histogram::kBucketCount; ++bucket) {
    const std::uint64_t count = histogram.counts[bucket];
    if (count == 0) continue;
    mask |= std::uint64_t{1} << bucket;
    out = write_varint(out, count);
  }
  std::memcpy(head, &histogram.top, sizeof histogram.top);
  std::memcpy(head + 2, &mask, sizeof mask);
  return out;
}

bool has_bit(std::span<const std::byte> bitmap, std::size_t row) {
  return (std::to_integer<unsigned>(bitmap[row / 8]) >> (row % 8) & 1u) != 0;
}

// Reads varint counts one histogram after the other.
class HistogramReader {
 public:
  explicit HistogramReader(std::span<const std::byte> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool read(Histogram& out) noexcept {
    std::uint64_t mask = 0;
    if (!read_head(out.top, mask)) return false;
    out.counts.fill(0);
    for (; mask != 0; mask &= mask - 1) {
      if (!read_varint(out.counts[static_cast<std::size_t>(std::countr_zero(mask))])) return false;
    }
    return true;
  }
  bool skip() noexcept {
    std::int16_t top = 0;
    std::uint64_t mask = 0;
    if (!read_head(top, mask)) return false;
    for (int left = std::popcount(mask); left > 0; --left) {
      std::uint64_t ignored = 0;
      if (!read_varint(ignored)) return false;
    }
    return true;
  }

 private:
  bool read_head(std::int16_t& top, std::uint64_t& mask) noexcept {
    if (static_cast<std::size_t>(end_ - at_) < kHistogramHeadSize) return false;
    std::memcpy(&top, at_, sizeof top);
    std::memcpy(&mask, at_ + 2, sizeof mask);
    at_ += kHistogramHeadSize;
    return true;
  }
  bool read_varint(std::uint64_t& value) noexcept {
    std::uint64_t result = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return false;
      const auto byte = std::to_integer<std::uint64_t>(*at_++);
      result |= (byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) {
        value = result;
        return true;
      }
    }
    return false;
  }

  const std::byte* at_;
  const std::byte* end_;
};

}  // namespace

void encode_histograms(std::span<const StatisticsRow> rows, ByteBuffer& out) {
  std::size_t histogram_count = 0;
  for (const StatisticsRow& row : rows) histogram_count += row.has_histogram ? 1 : 0;
  if (histogram_count == 0) return;
  const std::size_t bitmap_size = (rows.size() + 7) / 8;
  const std::size_t start = out.size();
  std::byte* bitmap = out.extend(bitmap_size + histogram_count * kMaxHistogramSize);
  std::memset(bitmap, 0, bitmap_size);
  std::byte* at = bitmap + bitmap_size;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].has_histogram) continue;
    bitmap[row / 8] |= static_cast<std::byte>(1u << (row % 8));
    at = write_histogram(rows[row].histogram, at);
  }
  out.truncate(start + static_cast<std::size_t>(at - bitmap));
}

bool decode_histograms(std::span<const std::byte> bytes, std::span<StatisticsRow> rows) noexcept {
  const std::size_t bitmap_size = (rows.size() + 7) / 8;
  if (bytes.empty()) {
    for (StatisticsRow& row : rows) row.has_histogram = false;
    return true;
  }
  if (bytes.size() < bitmap_size) return false;
  HistogramReader reader(bytes.subspan(bitmap_size));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row].has_histogram = has_bit(bytes, row);
    if (rows[row].has_histogram && !reader.read(rows[row].histogram)) return false;
  }
  return true;
}

bool decode_histogram(std::span<const std::byte> bytes, std::size_t row_count, std::size_t row,
                      StatisticsRow& out) noexcept {
  out.has_histogram = false;
  if (bytes.empty()) return true;
  const std::size_t bitmap_size = (row_count + 7) / 8;
  if (bytes.size() < bitmap_size) return false;
  out.has_histogram = has_bit(bytes, row);
  if (!out.has_histogram) return true;
  HistogramReader reader(bytes.subspan(bitmap_size));
  for (std::size_t before = 0; before < row; ++before) {
    if (has_bit(bytes, before) && !reader.skip()) return false;
  }
  return reader.read(out.histogram);
}

}  // namespace tensortap::trace
