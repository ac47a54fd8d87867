#include "base/bytes.h"

#include <array>
#include <bit>

namespace tensortap {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory");

constexpr int kVarintBits = 7;
constexpr std::uint8_t kVarintMore = 0x80;
constexpr std::size_t kMaxVarintBytes = 10;

}  // namespace

void ByteBuffer::put_varint(std::uint64_t value) {
  std::array<std::uint8_t, kMaxVarintBytes> encoded;
  std::size_t count = 0;
  while (value >= kVarintMore) {
    encoded[count++] = static_cast<std::uint8_t>(value | kVarintMore);
    value >>= kVarintBits;
  }
  encoded[count++] = static_cast<std::uint8_t>(value);
  append(encoded.data(), count);
}

void ByteBuffer::put_string(std::string_view text) {
  put_varint(text.size());
  append(text);
}

bool ByteReader::get_varint(std::uint64_t& value) noexcept {
  std::uint64_t decoded = 0;
  for (std::size_t i = 0; i < kMaxVarintBytes && i < remaining(); ++i) {
    const auto byte = std::to_integer<std::uint8_t>(bytes_[position_ + i]);
    // Nine bytes hold 63 bits, so the tenth may add one bit and must be the last.
    if (i + 1 == kMaxVarintBytes && byte > 1) return false;
    decoded |= std::uint64_t{byte & 0x7Fu} << (static_cast<int>(i) * kVarintBits);
    if ((byte & kVarintMore) == 0) {
      position_ += i + 1;
      value = decoded;
      return true;
    }
  }
  return false;
}

bool ByteReader::get_string(std::string_view& text) noexcept {
  const std::size_t start = position_;
  std::uint64_t size_untrusted = 0;
  std::span<const std::byte> body;
  if (!get_varint(size_untrusted) || !get_bytes(size_untrusted, body)) {
    position_ = start;
    return false;
  }
  // A char may look at any object's bytes.
  text = std::string_view(reinterpret_cast<const char*>(body.data()), body.size());
  return true;
}

bool ByteReader::get_bytes(std::size_t size_untrusted, std::span<const std::byte>& out) noexcept {
  if (size_untrusted > remaining()) return false;
  out = bytes_.subspan(position_, size_untrusted);
  position_ += size_untrusted;
  return true;
}

bool ByteReader::skip(std::size_t size_untrusted) noexcept {
  if (size_untrusted > remaining()) return false;
  position_ += size_untrusted;
  return true;
}

}  // namespace tensortap
