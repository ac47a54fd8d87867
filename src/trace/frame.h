// Segment headers and frame headers: how they are written and checked. A frame header carries its
// own checksum and its own position, so neither a flipped length nor bytes that were copied from
// elsewhere (a tensor that holds a trace) can lead a reader astray. Used by trace/ only. Pure
// functions, thread-safe, noexcept on hostile bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/format.h"

namespace tensortap::trace {

struct SegmentHeader {
  std::uint16_t major = kMajorVersion;
  std::uint16_t minor = kMinorVersion;
  std::array<std::byte, 16> run_id{};
  std::uint32_t session = 0;
  std::uint32_t sequence = 0;
  std::int64_t created_ns = 0;
  std::uint64_t features = 0;
};

void encode_segment_header(const SegmentHeader& header, std::byte* out);
// False when the bytes are no segment header or fail its checksum.
bool decode_segment_header(std::span<const std::byte> bytes, SegmentHeader& out) noexcept;

struct FrameHeader {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint16_t checked_units = 0;
  std::uint64_t payload_size = 0;
  std::uint64_t offset = 0;  // of this header in the file
  std::uint32_t payload_crc = 0;

  bool is(FrameType wanted) const { return type == static_cast<std::uint8_t>(wanted); }
  std::uint64_t payload_offset() const { return offset + kFrameHeaderSize; }
  std::uint64_t checked_size() const {
    if ((flags & kFlagPartlyChecked) == 0) return payload_size;
    return std::min<std::uint64_t>(payload_size, checked_units * std::uint64_t{8});
  }
  std::uint64_t end_offset() const {
    return payload_offset() + round_up(payload_size, kFrameAlignment);
  }
};

void encode_frame_header(const FrameHeader& header, std::byte* out);
// False when the bytes are no frame header that was written for this offset.
bool decode_frame_header(std::span<const std::byte> bytes, std::uint64_t offset,
                         FrameHeader& out) noexcept;

}  // namespace tensortap::trace
