#include "trace/segment_scan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "trace/dictionary_codec.h"

namespace tensortap::trace {
namespace {

constexpr std::uint64_t kLargeFrameBytes = 64u << 10;
constexpr std::size_t kSmallAheadBytes = 4096;
constexpr std::size_t kSearchBytes = std::size_t{64} << 10;

bool supported(const SegmentHeader& header) {
  return header.major == kMajorVersion && (header.features & ~kKnownFeatures) == 0;
}

}  // namespace

std::string place(const std::string& name, std::uint64_t offset) {
  return fmt::format("{}, byte {}", name, offset);
}

std::optional<std::uint32_t> checksum_of(WindowReader& reader, std::uint64_t offset,
                                         std::uint64_t size) {
  std::uint32_t crc = crc32c({});
  while (size > 0) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(size, WindowReader::kAheadBytes));
    const std::span<const std::byte> piece = reader.read(offset, wanted);
    if (piece.size() < wanted) return std::nullopt;
    crc = crc32c_extend(crc, piece);
    offset += wanted;
    size -= wanted;
  }
  return crc;
}

void SegmentScan::advance(WindowReader& reader, std::uint64_t file_size) {
  if (header_state_ == HeaderState::kMissing && !read_segment_header(reader, file_size)) return;
  if (header_state_ == HeaderState::kUnsupported) return;
  while (damage_start_ ? resynchronise(reader, file_size) : read_frame(reader, file_size)) {
  }
}

const std::vector<std::uint32_t>& SegmentScan::tensor_ordinals(TensorId tensor) const {
  static const std::vector<std::uint32_t> none;
  return tensor < ordinals_.size() ? ordinals_[tensor] : none;
}

std::vector<SourceProblem> SegmentScan::take_problems() { return std::exchange(problems_, {}); }

void SegmentScan::report(std::uint64_t offset, std::string what) {
  problems_.push_back({place(name_, offset), std::move(what)});
}

bool SegmentScan::read_segment_header(WindowReader& reader, std::uint64_t file_size) {
  if (file_size < kSegmentHeaderSize) return false;
  position_ = kSegmentHeaderSize;
  if (!decode_segment_header(reader.read(0, kSegmentHeaderSize), header_)) {
    header_state_ = HeaderState::kDamaged;
    report(0, "this is not the start of a trace segment, or it is damaged");
    return true;
  }
  if (!supported(header_)) {
    header_state_ = HeaderState::kUnsupported;
    report(0, fmt::format("written by a newer version of the format ({}.{}, features {:#x})",
                          header_.major, header_.minor, header_.features));
    return false;
  }
  header_state_ = HeaderState::kValid;
  return true;
}

// One frame at the current position. False when it is not whole yet.
bool SegmentScan::read_frame(WindowReader& reader, std::uint64_t file_size) {
  if (position_ > file_size || file_size - position_ < kFrameHeaderSize) return false;
  FrameHeader frame;
  if (!decode_frame_header(reader.read(position_, kFrameHeaderSize, ahead_bytes_), position_,
                           frame)) {
    damage_start_ = position_;
    report(position_, "damaged bytes; skipped to the next whole frame");
    return true;
  }
  if (frame.end_offset() > file_size) return false;
  take_frame(reader, frame);
  if (check_everything_) check_padding(reader, frame);
  ++frame_count_;
  // Among large raw values, what lies ahead is mostly not looked at.
  ahead_bytes_ =
      frame.payload_size > kLargeFrameBytes ? kSmallAheadBytes : WindowReader::kAheadBytes;
  position_ = frame.end_offset();
  return true;
}

// Looks for the next frame header on an 8-byte border. False when there is none so far.
bool SegmentScan::resynchronise(WindowReader& reader, std::uint64_t file_size) {
  while (position_ <= file_size && file_size - position_ >= kFrameHeaderSize) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(file_size - position_, kSearchBytes));
    const std::span<const std::byte> bytes = reader.read(position_, wanted, kSearchBytes);
    if (bytes.size() < kFrameHeaderSize) return false;
    std::size_t at = 0;
    for (; at + kFrameHeaderSize <= bytes.size(); at += kFrameAlignment) {
      FrameHeader frame;
      if (!decode_frame_header(bytes.subspan(at), position_ + at, frame)) continue;
      position_ += at;
      damage_start_.reset();
      return true;
    }
    position_ += at;
  }
  return false;
}

void SegmentScan::take_frame(WindowReader& reader, const FrameHeader& frame) {
  const bool is_dictionary = frame.is(FrameType::kDictionary);
  const bool is_step = frame.is(FrameType::kStep);
  if (!is_dictionary && !is_step) {
    if (frame.is(FrameType::kTrailer)) has_trailer_ = true;
    if (check_everything_) check_payload(reader, frame);
    return;
  }
  const std::span<const std::byte> payload =
      reader.read(frame.payload_offset(), static_cast<std::size_t>(frame.payload_size));
  const bool whole = payload.size() == frame.payload_size && frame.flags == 0 &&
                     crc32c(payload) == frame.payload_crc;
  if (!whole) {
    dictionary_lost_ |= is_dictionary;
    report(frame.offset, is_step ? "a step fails its checksum; it is left out"
                                 : "definitions of tensors fail their checksum");
  } else if (is_step) {
    take_step(payload, frame);
    if (check_everything_) check_entries(reader, view_, frame.offset);
  } else {
    take_dictionary(payload, frame.offset);
  }
}

void SegmentScan::take_dictionary(std::span<const std::byte> payload, std::uint64_t offset) {
  switch (decode_dictionary(payload, dictionary_)) {
    case DictionaryOutcome::kOk:
      break;
    case DictionaryOutcome::kGap:
      report(offset, "definitions of tensors are missing before this place");
      break;
    case DictionaryOutcome::kCorrupt:
    case DictionaryOutcome::kConflict:
      report(offset, "definitions of tensors contradict the format");
      break;
  }
}

void SegmentScan::take_step(std::span<const std::byte> payload, const FrameHeader& frame) {
  if (!parse_step(payload, view_)) {
    view_ = EncodedStep{};
    return report(frame.offset, "a step contradicts the format; it is left out");
  }
  if (!ids_are_valid(view_, dictionary_.tensors.size(), dictionary_.layouts.size(), seen_)) {
    view_ = EncodedStep{};
    return report(frame.offset,
                  dictionary_lost_ ? "a step uses tensors whose definition was lost; it is left out"
                                   : "a step uses undefined tensors; it is left out");
  }
  note_tensors(view_);
  steps_.push_back({view_.info, frame.offset, frame.payload_size});
}

void SegmentScan::note_tensors(const EncodedStep& step) {
  ordinals_.resize(dictionary_.tensors.size());
  const auto ordinal = static_cast<std::uint32_t>(steps_.size());
  const auto note = [&](std::uint64_t tensor) {
    std::vector<std::uint32_t>& ordinals = ordinals_[tensor];
    if (ordinals.empty() || ordinals.back() != ordinal) ordinals.push_back(ordinal);
  };
  step.tensors.visit(0, step.row_count,
                     [&](std::size_t, auto value) { note(static_cast<std::uint64_t>(value)); });
  for (std::size_t i = 0; i < step.raw_count; ++i) note(step.raw(i).tensor);
  for (std::size_t i = 0; i < step.text_count; ++i) note(step.text(i).tensor);
}

void SegmentScan::check_payload(WindowReader& reader, const FrameHeader& frame) {
  const std::optional<std::uint32_t> crc =
      checksum_of(reader, frame.payload_offset(), frame.checked_size());
  if (crc != frame.payload_crc) report(frame.offset, "a frame fails its checksum");
}

// The bytes that fill a frame up to the next 8-byte border.
void SegmentScan::check_padding(WindowReader& reader, const FrameHeader& frame) {
  const std::uint64_t start = frame.payload_offset() + frame.payload_size;
  const auto size = static_cast<std::size_t>(frame.end_offset() - start);
  const std::span<const std::byte> bytes = reader.read(start, size);
  const bool zero =
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!zero) report(frame.offset, "the padding behind a frame is damaged");
}

// The values that a step refers to; the payload of its frame may be gone from the reader after
// this.
void SegmentScan::check_entries(WindowReader& reader, const EncodedStep& step,
                                std::uint64_t file_end) {
  std::vector<RawEntry> raws;
  std::vector<TextEntry> texts;
  for (std::size_t i = 0; i < step.raw_count; ++i) raws.push_back(step.raw(i));
  for (std::size_t i = 0; i < step.text_count; ++i) texts.push_back(step.text(i));
  const auto check = [&](std::uint64_t offset, std::uint64_t size, std::uint32_t crc,
                         const char* what) {
    const bool inside = offset <= file_end && size <= file_end - offset;
    if (!inside || checksum_of(reader, offset, size) != crc) report(offset, what);
  };
  for (const RawEntry& raw : raws) {
    check(raw.data_offset, raw.stored_size, raw.data_crc, "a raw value fails its checksum");
  }
  for (const TextEntry& text : texts) {
    check(text.offset, text.size, text.text_crc, "a text fails its checksum");
  }
}

}  // namespace tensortap::trace
