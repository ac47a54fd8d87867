// The payload of a STEP frame, the commit record of a step: who, when, all statistics as columns,
// and where the step's raw values and texts lie. Used by trace/ only. Not thread-safe (encoder);
// parsing is noexcept on hostile bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "trace/column_codec.h"
#include "trace/step_record.h"

namespace tensortap::trace {

struct RawEntry {
  TensorId tensor = 0;
  LayoutId layout = 0;
  std::uint64_t data_offset = 0;  // in the file
  std::uint64_t stored_size = 0;
  std::uint64_t raw_size = 0;  // once decompressed
  std::uint32_t codec = 0;
  std::uint32_t data_crc = 0;  // of the stored bytes
};

struct TextEntry {
  TensorId tensor = 0;
  std::uint32_t text_crc = 0;
  std::uint64_t offset = 0;  // of the text in the file
  std::uint64_t size = 0;
};

void encode_raw_entry(const RawEntry& entry, std::byte* out);
RawEntry decode_raw_entry(const std::byte* bytes) noexcept;
void encode_text_entry(const TextEntry& entry, std::byte* out);
TextEntry decode_text_entry(const std::byte* bytes) noexcept;

// Reused from step to step, so that encoding allocates nothing once warm.
class StepEncoder {
 public:
  void encode(const StepRecord& step, std::span<const RawEntry> raws,
              std::span<const TextEntry> texts, ByteBuffer& out);

 private:
  void put_column(std::uint8_t code, Encoding encoding, auto values, ByteBuffer& out);
  void put_columns(std::span<const StatisticsRow> rows, ByteBuffer& out);

  std::vector<std::uint64_t> integers_;
  std::vector<double> numbers_;
};

// A parsed payload; points into it.
struct EncodedStep {
  StepInfo info;
  std::uint32_t row_count = 0;
  std::uint32_t raw_count = 0;
  std::uint32_t text_count = 0;
  ColumnView tensors;
  ColumnView layouts;
  std::array<ColumnView, kStoredStatisticCount> statistics;  // not present: unknown
  std::span<const std::byte> raws;
  std::span<const std::byte> texts;
  std::span<const std::byte> histograms;

  TensorId tensor(std::size_t row) const noexcept {
    return static_cast<TensorId>(tensors.integer(row));
  }
  RawEntry raw(std::size_t index) const noexcept;
  TextEntry text(std::size_t index) const noexcept;
  // The row of a tensor, or row_count.
  std::size_t find_row(TensorId tensor) const noexcept;
};

// False when the bytes are no step. The ids inside are not checked against a dictionary here.
bool parse_step(std::span<const std::byte> payload, EncodedStep& out) noexcept;

// Ids below these, each tensor at most once among the rows. `seen` is scratch, reused by the
// caller.
bool ids_are_valid(const EncodedStep& step, std::size_t tensor_count, std::size_t layout_count,
                   std::vector<bool>& seen);

// All rows, into memory that is reused. False when the histograms are damaged.
bool decode_rows(const EncodedStep& step, std::vector<StatisticsRow>& rows);
bool decode_row(const EncodedStep& step, std::size_t row, StatisticsRow& out) noexcept;

// Sets one stored statistic; a missing column is 0 for counts and NaN otherwise.
void set_statistic(Statistics& statistics, std::uint8_t code, std::uint64_t value) noexcept;
void set_statistic(Statistics& statistics, std::uint8_t code, double value) noexcept;

}  // namespace tensortap::trace
