// Reads a segment frame by frame: one that still grows, one that its writer never sealed, or one
// whose index is damaged. Keeps its position, so each advance() reads new bytes only; skips damage
// by searching for the next frame header that fits. Used by trace/ only. Not thread-safe; safe on
// hostile bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/storage.h"
#include "trace/frame.h"
#include "trace/step_codec.h"
#include "trace/trace_source.h"
#include "trace/window_reader.h"

namespace tensortap::trace {

// Where a complete step is.
struct StepEntry {
  StepInfo info;
  std::uint64_t frame_offset = 0;
  std::uint64_t payload_size = 0;
};

enum class HeaderState {
  kMissing,  // not all of it is there yet
  kValid,
  kDamaged,      // the frames may still be read
  kUnsupported,  // a newer major version or an unknown required feature
};

class SegmentScan {
 public:
  // With check_everything the checksums of raw values, texts and index columns are computed too.
  SegmentScan(std::string name, bool check_everything)
      : name_(std::move(name)), check_everything_(check_everything) {}

  // Goes on as far as whole frames reach below file_size.
  void advance(WindowReader& reader, std::uint64_t file_size);

  HeaderState header_state() const { return header_state_; }
  const SegmentHeader& header() const { return header_; }
  const Dictionary& dictionary() const { return dictionary_; }
  const std::vector<StepEntry>& steps() const { return steps_; }
  // Steps (within the segment) at which a tensor has anything.
  const std::vector<std::uint32_t>& tensor_ordinals(TensorId tensor) const;
  std::uint64_t position() const { return position_; }
  std::uint64_t frame_count() const { return frame_count_; }
  bool is_in_damage() const { return damage_start_.has_value(); }
  bool has_trailer() const { return has_trailer_; }
  // Newly met since the last call.
  std::vector<SourceProblem> take_problems();

 private:
  bool read_segment_header(WindowReader& reader, std::uint64_t file_size);
  bool read_frame(WindowReader& reader, std::uint64_t file_size);
  bool resynchronise(WindowReader& reader, std::uint64_t file_size);
  void take_frame(WindowReader& reader, const FrameHeader& frame);
  void take_dictionary(std::span<const std::byte> payload, std::uint64_t offset);
  void take_step(std::span<const std::byte> payload, const FrameHeader& frame);
  void check_payload(WindowReader& reader, const FrameHeader& frame);
  void check_padding(WindowReader& reader, const FrameHeader& frame);
  void check_entries(WindowReader& reader, const EncodedStep& step, std::uint64_t file_end);
  void note_tensors(const EncodedStep& step);
  void report(std::uint64_t offset, std::string what);

  const std::string name_;
  const bool check_everything_;
  HeaderState header_state_ = HeaderState::kMissing;
  SegmentHeader header_;
  Dictionary dictionary_;
  bool dictionary_lost_ = false;
  std::vector<StepEntry> steps_;
  std::vector<std::vector<std::uint32_t>> ordinals_;  // by tensor
  std::uint64_t position_ = 0;
  std::uint64_t frame_count_ = 0;
  std::size_t ahead_bytes_ = WindowReader::kAheadBytes;
  std::optional<std::uint64_t> damage_start_;
  bool has_trailer_ = false;
  std::vector<SourceProblem> problems_;
  std::vector<bool> seen_;
  EncodedStep view_;
};

// Where a problem is: "trace/worker_0/00000000.ttap, byte 1234".
std::string place(const std::string& name, std::uint64_t offset);

// CRC32C of part of a file, in pieces; nothing when the file ends before.
std::optional<std::uint32_t> checksum_of(WindowReader& reader, std::uint64_t offset,
                                         std::uint64_t size);

}  // namespace tensortap::trace
