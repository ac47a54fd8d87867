#include "trace/index_format.h"

#include <cstring>

#include "trace/format.h"

namespace tensortap::trace {
namespace {

// Fields one after the other, as they lie in the file.
class FieldWriter {
 public:
  explicit FieldWriter(std::byte* out) : out_(out) {}
  template <class T>
  FieldWriter& put(T value) {
    std::memcpy(out_, &value, sizeof value);
    out_ += sizeof value;
    return *this;
  }
  FieldWriter& put(const BlockRef& block) {
    return put(block.offset).put(block.size).put(block.crc).put(std::uint32_t{0});
  }

 private:
  std::byte* out_;
};

class FieldReader {
 public:
  explicit FieldReader(const std::byte* bytes) : bytes_(bytes) {}
  template <class T>
  FieldReader& get(T& value) {
    std::memcpy(&value, bytes_, sizeof value);
    bytes_ += sizeof value;
    return *this;
  }
  FieldReader& get(BlockRef& block) {
    std::uint32_t reserved = 0;
    return get(block.offset).get(block.size).get(block.crc).get(reserved);
  }

 private:
  const std::byte* bytes_;
};

}  // namespace

void encode_index_head(const IndexHead& head, std::byte* out) {
  std::memset(out, 0, kIndexHeadSize);
  FieldWriter(out)
      .put(head.step_count)
      .put(head.tensor_count)
      .put(head.layout_count)
      .put(head.steps)
      .put(head.dictionary)
      .put(head.directory)
      .put(head.rest_crc);
}

IndexHead decode_index_head(const std::byte* bytes) noexcept {
  IndexHead head;
  FieldReader(bytes)
      .get(head.step_count)
      .get(head.tensor_count)
      .get(head.layout_count)
      .get(head.steps)
      .get(head.dictionary)
      .get(head.directory)
      .get(head.rest_crc);
  return head;
}

void encode_step_entry(const StepEntry& entry, std::byte* out) {
  FieldWriter(out)
      .put(entry.info.step)
      .put(entry.info.mode_step)
      .put(entry.info.wall_time_ns)
      .put(entry.info.duration_ns)
      .put(entry.info.session)
      .put(static_cast<std::uint32_t>(entry.info.mode))
      .put(entry.frame_offset)
      .put(entry.payload_size);
}

bool decode_step_entry(const std::byte* bytes, StepEntry& out) noexcept {
  std::uint32_t mode = 0;
  FieldReader(bytes)
      .get(out.info.step)
      .get(out.info.mode_step)
      .get(out.info.wall_time_ns)
      .get(out.info.duration_ns)
      .get(out.info.session)
      .get(mode)
      .get(out.frame_offset)
      .get(out.payload_size);
  if (mode > UINT8_MAX) return false;
  const std::optional<Mode> known = mode_from_code(static_cast<std::uint8_t>(mode));
  if (known) out.info.mode = *known;
  return known.has_value();
}

void encode_tensor_head(const TensorHead& head, std::byte* out) {
  FieldWriter(out).put(head.tensor).put(head.row_count).put(head.column_count).put(head.flags);
}

TensorHead decode_tensor_head(const std::byte* bytes) noexcept {
  TensorHead head;
  FieldReader(bytes).get(head.tensor).get(head.row_count).get(head.column_count).get(head.flags);
  return head;
}

void encode_tensor_column(const TensorColumn& column, std::byte* out) {
  FieldWriter(out)
      .put(column.code)
      .put(column.encoding)
      .put(column.codec)
      .put(column.shuffle_width)
      .put(column.crc)
      .put(column.offset)
      .put(column.stored_size)
      .put(column.decoded_size);
}

TensorColumn decode_tensor_column(const std::byte* bytes) noexcept {
  TensorColumn column;
  FieldReader(bytes)
      .get(column.code)
      .get(column.encoding)
      .get(column.codec)
      .get(column.shuffle_width)
      .get(column.crc)
      .get(column.offset)
      .get(column.stored_size)
      .get(column.decoded_size);
  return column;
}

void encode_trailer(const Trailer& trailer, std::byte* out) {
  FieldWriter(out)
      .put(trailer.index_offset)
      .put(trailer.index_payload_size)
      .put(trailer.file_size)
      .put(std::uint64_t{0});
}

Trailer decode_trailer(const std::byte* bytes) noexcept {
  Trailer trailer;
  FieldReader(bytes)
      .get(trailer.index_offset)
      .get(trailer.index_payload_size)
      .get(trailer.file_size);
  return trailer;
}

}  // namespace tensortap::trace
