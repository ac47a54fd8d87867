// The fixed-size pieces of a sealed segment's index, and how they are read and written. Used by
// trace/ only. Pure functions, noexcept on hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/segment_scan.h"

namespace tensortap::trace {

// A piece of the file with its own checksum.
struct BlockRef {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
};

struct IndexHead {
  std::uint64_t step_count = 0;
  std::uint32_t tensor_count = 0;
  std::uint32_t layout_count = 0;
  BlockRef steps;
  BlockRef dictionary;
  BlockRef directory;
  std::uint32_t rest_crc = 0;  // of the payload behind this head
};

struct TensorHead {
  TensorId tensor = 0;
  std::uint32_t row_count = 0;
  std::uint32_t column_count = 0;
  std::uint32_t flags = 0;
};

struct TensorColumn {
  std::uint8_t code = 0;
  std::uint8_t encoding = 0;
  std::uint8_t codec = 0;
  std::uint8_t shuffle_width = 0;  // 0: not shuffled
  std::uint32_t crc = 0;           // of the stored bytes
  std::uint64_t offset = 0;        // in the file; of a constant: its 8 bytes
  std::uint64_t stored_size = 0;   // 0 for a constant
  std::uint64_t decoded_size = 0;
};

struct Trailer {
  std::uint64_t index_offset = 0;  // of the INDEX frame
  std::uint64_t index_payload_size = 0;
  std::uint64_t file_size = 0;
};

void encode_index_head(const IndexHead& head, std::byte* out);
IndexHead decode_index_head(const std::byte* bytes) noexcept;
void encode_step_entry(const StepEntry& entry, std::byte* out);
// False when the mode is unknown.
bool decode_step_entry(const std::byte* bytes, StepEntry& out) noexcept;
void encode_tensor_head(const TensorHead& head, std::byte* out);
TensorHead decode_tensor_head(const std::byte* bytes) noexcept;
void encode_tensor_column(const TensorColumn& column, std::byte* out);
TensorColumn decode_tensor_column(const std::byte* bytes) noexcept;
void encode_trailer(const Trailer& trailer, std::byte* out);
Trailer decode_trailer(const std::byte* bytes) noexcept;

}  // namespace tensortap::trace
