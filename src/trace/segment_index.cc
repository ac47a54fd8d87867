#include "trace/segment_index.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/crc32c.h"
#include "trace/compression.h"
#include "trace/dictionary_codec.h"
#include "trace/format.h"

namespace tensortap::trace {
namespace {

constexpr std::size_t kRawRecordSize = 8 + kRawEntrySize;
constexpr std::size_t kTextRecordSize = 8 + kTextEntrySize;

bool is_inside(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) {
  return offset <= file_size && size <= file_size - offset;
}

// A tensor may have two texts at one step, but it has that step once.
bool sort_out(std::vector<std::uint32_t>& ordinals, std::size_t step_count) {
  if (!std::is_sorted(ordinals.begin(), ordinals.end())) return false;
  ordinals.erase(std::unique(ordinals.begin(), ordinals.end()), ordinals.end());
  return ordinals.empty() || ordinals.back() < step_count;
}

bool is_ascending(const std::vector<std::uint32_t>& ordinals, std::size_t step_count) {
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (ordinals[i] >= step_count || (i > 0 && ordinals[i] <= ordinals[i - 1])) return false;
  }
  return true;
}

// The frame at `offset` if it is whole, checked as far as its checksum reaches.
bool read_frame(WindowReader& reader, std::uint64_t offset, std::uint64_t file_size,
                std::size_t payload_size, FrameHeader& header,
                std::span<const std::byte>& payload) {
  if (!is_inside(offset, kFrameHeaderSize + payload_size, file_size)) return false;
  const std::span<const std::byte> bytes = reader.read(offset, kFrameHeaderSize + payload_size);
  if (bytes.size() < kFrameHeaderSize + payload_size) return false;
  if (!decode_frame_header(bytes, offset, header)) return false;
  if (header.checked_size() > payload_size || header.end_offset() > file_size) return false;
  payload = bytes.subspan(kFrameHeaderSize);
  return crc32c(payload.first(static_cast<std::size_t>(header.checked_size()))) ==
         header.payload_crc;
}

}  // namespace

const TensorColumn* TensorIndex::find(std::uint8_t code) const {
  for (const TensorColumn& column : columns) {
    if (column.code == code) return &column;
  }
  return nullptr;
}

SegmentIndex::Outcome SegmentIndex::open(WindowReader& reader, std::uint64_t file_size,
                                         std::unique_ptr<SegmentIndex>& out) {
  constexpr std::uint64_t kTrailerFrameSize = kFrameHeaderSize + kTrailerSize;
  if (file_size < kSegmentHeaderSize + kTrailerFrameSize) return Outcome::kNotSealed;
  const std::uint64_t trailer_offset = file_size - kTrailerFrameSize;
  FrameHeader frame;
  std::span<const std::byte> payload;
  // No trailer: a segment that grows, was never sealed, or lost its end.
  if (!read_frame(reader, trailer_offset, file_size, kTrailerSize, frame, payload) ||
      !frame.is(FrameType::kTrailer) || frame.payload_size != kTrailerSize) {
    return Outcome::kNotSealed;
  }
  const Trailer trailer = decode_trailer(payload.data());
  if (trailer.file_size != file_size) return Outcome::kDamaged;
  if (!read_frame(reader, trailer.index_offset, file_size, kIndexHeadSize, frame, payload) ||
      !frame.is(FrameType::kIndex) || frame.payload_size < kIndexHeadSize) {
    return Outcome::kDamaged;
  }
  auto index = std::make_unique<SegmentIndex>();
  index->file_size_ = file_size;
  index->index_offset_ = trailer.index_offset;
  index->index_payload_size_ = frame.payload_size;
  index->head_ = decode_index_head(payload.data());
  if (!index->read_steps(reader)) return Outcome::kDamaged;
  out = std::move(index);
  return Outcome::kOk;
}

bool SegmentIndex::is_whole(WindowReader& reader) const {
  return checksum_of(reader, index_offset_ + kFrameHeaderSize + kIndexHeadSize,
                     index_payload_size_ - kIndexHeadSize) == head_.rest_crc;
}

bool SegmentIndex::read_block(WindowReader& reader, const BlockRef& block,
                              std::span<const std::byte>& out) const {
  if (!is_inside(block.offset, block.size, file_size_)) return false;
  out = reader.read(block.offset, static_cast<std::size_t>(block.size));
  return out.size() == block.size && crc32c(out) == block.crc;
}

bool SegmentIndex::read_steps(WindowReader& reader) {
  std::span<const std::byte> bytes;
  if (head_.steps.size / kIndexStepSize != head_.step_count ||
      head_.steps.size % kIndexStepSize != 0 || head_.step_count > UINT32_MAX) {
    return false;
  }
  if (!read_block(reader, head_.steps, bytes)) return false;
  steps_.resize(static_cast<std::size_t>(head_.step_count));
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!decode_step_entry(bytes.data() + i * kIndexStepSize, steps_[i])) return false;
    const StepEntry& step = steps_[i];
    if (step.payload_size > file_size_ ||
        !is_inside(step.frame_offset, kFrameHeaderSize + step.payload_size, file_size_)) {
      return false;
    }
  }
  return true;
}

bool SegmentIndex::read_dictionary(WindowReader& reader, Dictionary& into) const {
  std::span<const std::byte> bytes;
  Dictionary own;
  return read_block(reader, head_.dictionary, bytes) &&
         decode_dictionary(bytes, own) == DictionaryOutcome::kOk &&
         own.tensors.size() == head_.tensor_count && own.layouts.size() == head_.layout_count &&
         merge_dictionary(own, into);
}

bool SegmentIndex::read_tensor(WindowReader& reader, TensorId tensor, TensorIndex& out) const {
  out = TensorIndex{};
  if (tensor >= head_.tensor_count) return true;
  std::span<const std::byte> bytes;
  if (head_.directory.size != std::uint64_t{head_.tensor_count} * kDirectoryEntrySize ||
      !read_block(reader, head_.directory, bytes)) {
    return false;
  }
  BlockRef block;
  std::uint32_t size = 0;
  const std::byte* entry = bytes.data() + std::size_t{tensor} * kDirectoryEntrySize;
  std::memcpy(&block.offset, entry, 8);
  std::memcpy(&size, entry + 8, 4);
  std::memcpy(&block.crc, entry + 12, 4);
  block.size = size;
  if (size == 0) return true;
  if (size < kTensorHeadSize || !read_block(reader, block, bytes)) return false;
  out.head = decode_tensor_head(bytes.data());
  if (out.head.tensor != tensor || out.head.row_count > steps_.size() ||
      out.head.column_count != (size - kTensorHeadSize) / kTensorColumnSize) {
    return false;
  }
  if ((out.head.flags & kTensorFlagEveryStep) != 0 && out.head.row_count != steps_.size()) {
    return false;
  }
  for (std::uint32_t i = 0; i < out.head.column_count; ++i) {
    out.columns.push_back(
        decode_tensor_column(bytes.data() + kTensorHeadSize + i * kTensorColumnSize));
  }
  return true;
}

bool SegmentIndex::read_bytes(WindowReader& reader, const TensorColumn& column,
                              std::uint64_t decoded_size, std::vector<std::byte>& out) const {
  if (column.decoded_size != decoded_size) return false;
  std::span<const std::byte> stored;
  if (!read_block(reader, {column.offset, column.stored_size, column.crc}, stored)) return false;
  std::vector<std::byte> plain(static_cast<std::size_t>(decoded_size));
  if (column.codec == kCodecZstd) {
    if (!decompress(stored, plain)) return false;
  } else {
    if (column.codec != kCodecNone || stored.size() != plain.size()) return false;
    if (!plain.empty()) std::memcpy(plain.data(), stored.data(), plain.size());
  }
  const std::size_t width = column.shuffle_width;
  if (width == 0) {
    out = std::move(plain);
    return true;
  }
  if ((width != 2 && width != 4 && width != 8) || plain.size() % width != 0) return false;
  out.resize(plain.size());
  unshuffle(plain, width, out.data());
  return true;
}

bool SegmentIndex::read_column(WindowReader& reader, const TensorIndex& tensor,
                               const TensorColumn& column, DecodedColumn& out) const {
  if (column.encoding > kEncodingMax) return false;
  const auto encoding = static_cast<Encoding>(column.encoding);
  if (is_constant(encoding)) {
    out.memory.resize(8);
    std::memcpy(out.memory.data(), &column.offset, 8);
  } else if (!read_bytes(reader, column, encoded_size(encoding, tensor.head.row_count),
                         out.memory)) {
    return false;
  }
  return make_column_view(column.encoding, out.memory, tensor.head.row_count, out.view);
}

bool SegmentIndex::read_row_ordinals(WindowReader& reader, const TensorIndex& tensor,
                                     std::vector<std::uint32_t>& out) const {
  out.resize(tensor.head.row_count);
  if (tensor.head.row_count == 0) return true;
  if ((tensor.head.flags & kTensorFlagEveryStep) != 0) {
    for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = i;
    return true;
  }
  const TensorColumn* column = tensor.find(kColumnOrdinal);
  DecodedColumn decoded;
  if (column == nullptr || !read_column(reader, tensor, *column, decoded) ||
      !is_unsigned(decoded.view.encoding)) {
    return false;
  }
  decoded.view.visit(0, out.size(), [&](std::size_t i, auto value) {
    out[i] = value > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(value);
  });
  return is_ascending(out, steps_.size());
}

bool SegmentIndex::read_value_ordinals(WindowReader& reader, const TensorColumn& column,
                                       std::size_t record_size,
                                       std::vector<std::uint32_t>& out) const {
  std::vector<std::byte> bytes;
  // Each record repeats an entry of a step, so all of them are hardly larger than the file.
  if (column.decoded_size / 2 > file_size_) return false;
  const std::uint64_t count = column.decoded_size / record_size;
  if (!read_bytes(reader, column, count * record_size, bytes)) return false;
  out.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::memcpy(&out[i], bytes.data() + i * record_size, sizeof out[i]);
  }
  return sort_out(out, steps_.size());
}

bool SegmentIndex::read_all_ordinals(WindowReader& reader, const TensorIndex& tensor,
                                     std::vector<std::uint32_t>& out) const {
  if (!read_row_ordinals(reader, tensor, out)) return false;
  for (const std::uint8_t code : {kColumnRaw, kColumnText}) {
    const TensorColumn* column = tensor.find(code);
    if (column == nullptr) continue;
    std::vector<std::uint32_t> values;
    const std::size_t record_size = code == kColumnRaw ? kRawRecordSize : kTextRecordSize;
    if (!read_value_ordinals(reader, *column, record_size, values)) return false;
    std::vector<std::uint32_t> merged;
    std::set_union(out.begin(), out.end(), values.begin(), values.end(),
                   std::back_inserter(merged));
    out = std::move(merged);
  }
  return true;
}

}  // namespace tensortap::trace
