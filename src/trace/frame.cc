#include "trace/frame.h"

#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace tensortap::trace {

void encode_segment_header(const SegmentHeader& header, std::byte* out) {
  std::memset(out, 0, kSegmentHeaderSize);
  std::memcpy(out, kSegmentMagic.data(), kSegmentMagic.size());
  store(out, 8, header.major);
  store(out, 10, header.minor);
  store(out, 12, static_cast<std::uint32_t>(kSegmentHeaderSize));
  std::memcpy(out + 16, header.run_id.data(), header.run_id.size());
  store(out, 32, header.session);
  store(out, 36, header.sequence);
  store(out, 40, header.created_ns);
  store(out, 48, header.features);
  store(out, 60, crc32c({out, 60}));
}

bool decode_segment_header(std::span<const std::byte> bytes, SegmentHeader& out) noexcept {
  if (bytes.size() < kSegmentHeaderSize) return false;
  if (std::memcmp(bytes.data(), kSegmentMagic.data(), kSegmentMagic.size()) != 0) return false;
  if (load<std::uint32_t>(bytes.data(), 60) != crc32c(bytes.first(60))) return false;
  out.major = load<std::uint16_t>(bytes.data(), 8);
  out.minor = load<std::uint16_t>(bytes.data(), 10);
  std::memcpy(out.run_id.data(), bytes.data() + 16, out.run_id.size());
  out.session = load<std::uint32_t>(bytes.data(), 32);
  out.sequence = load<std::uint32_t>(bytes.data(), 36);
  out.created_ns = load<std::int64_t>(bytes.data(), 40);
  out.features = load<std::uint64_t>(bytes.data(), 48);
  return true;
}

void encode_frame_header(const FrameHeader& header, std::byte* out) {
  store(out, 0, kFrameMagic);
  store(out, 4, header.type);
  store(out, 5, header.flags);
  store(out, 6, header.checked_units);
  store(out, 8, header.payload_size);
  store(out, 16, header.offset);
  store(out, 24, header.payload_crc);
  store(out, 28, crc32c({out, 28}));
}

bool decode_frame_header(std::span<const std::byte> bytes, std::uint64_t offset,
                         FrameHeader& out) noexcept {
  if (bytes.size() < kFrameHeaderSize) return false;
  if (load<std::uint32_t>(bytes.data(), 0) != kFrameMagic) return false;
  if (load<std::uint64_t>(bytes.data(), 16) != offset) return false;
  if (load<std::uint32_t>(bytes.data(), 28) != crc32c(bytes.first(28))) return false;
  const auto payload_size = load<std::uint64_t>(bytes.data(), 8);
  if (payload_size > kMaxPayloadSize || offset > kMaxPayloadSize) return false;
  out.type = load<std::uint8_t>(bytes.data(), 4);
  out.flags = load<std::uint8_t>(bytes.data(), 5);
  out.checked_units = load<std::uint16_t>(bytes.data(), 6);
  out.payload_size = payload_size;
  out.offset = offset;
  out.payload_crc = load<std::uint32_t>(bytes.data(), 24);
  return true;
}

}  // namespace tensortap::trace
