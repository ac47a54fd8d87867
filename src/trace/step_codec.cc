#include "trace/step_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "trace/format.h"
#include "trace/histogram_codec.h"
#include "trace/statistic_fields.h"

namespace tensortap::trace {
namespace {

// Where the varying parts of the head go; the payload starts at `head`.
struct StepCounts {
  std::uint32_t row_count = 0;
  std::uint32_t raw_count = 0;
  std::uint32_t text_count = 0;
  std::uint32_t column_count = 0;
  std::uint32_t columns_size = 0;
  std::uint32_t histograms_size = 0;
};

void encode_head(const StepInfo& info, const StepCounts& counts, std::byte* out) {
  std::memset(out, 0, kStepHeadSize);
  store(out, 0, info.step);
  store(out, 8, info.mode_step);
  store(out, 16, info.wall_time_ns);
  store(out, 24, info.duration_ns);
  store(out, 32, info.session);
  store(out, 36, static_cast<std::uint8_t>(info.mode));
  store(out, 38, static_cast<std::uint16_t>(kStepHeadSize));
  store(out, 40, counts.row_count);
  store(out, 44, counts.raw_count);
  store(out, 48, counts.text_count);
  store(out, 52, counts.column_count);
  store(out, 56, counts.columns_size);
  store(out, 60, counts.histograms_size);
}

bool decode_head(ByteReader& reader, StepInfo& info, StepCounts& counts) noexcept {
  std::uint8_t mode = 0;
  std::uint8_t reserved = 0;
  std::uint16_t head_size = 0;
  const bool whole = reader.get(info.step) && reader.get(info.mode_step) &&
                     reader.get(info.wall_time_ns) && reader.get(info.duration_ns) &&
                     reader.get(info.session) && reader.get(mode) && reader.get(reserved) &&
                     reader.get(head_size) && reader.get(counts.row_count) &&
                     reader.get(counts.raw_count) && reader.get(counts.text_count) &&
                     reader.get(counts.column_count) && reader.get(counts.columns_size) &&
                     reader.get(counts.histograms_size);
  if (!whole || head_size < kStepHeadSize) return false;
  const std::optional<Mode> known_mode = mode_from_code(mode);
  if (!known_mode) return false;
  info.mode = *known_mode;
  return reader.skip(head_size - kStepHeadSize);
}

// Puts one column where it belongs; unknown codes are skipped, known ones must be of the right
// kind.
bool place_column(std::uint8_t code, const ColumnView& column, EncodedStep& out) noexcept {
  const bool integers = is_unsigned(column.encoding);
  if (code == kColumnTensor) {
    out.tensors = column;
    return integers;
  }
  if (code == kColumnLayout) {
    out.layouts = column;
    return integers;
  }
  if (code >= kStoredStatisticCount) return true;
  out.statistics[code] = column;
  return integers == (code < kCountFieldCount);
}

bool parse_columns(std::span<const std::byte> bytes, std::uint32_t column_count,
                   EncodedStep& out) noexcept {
  ByteReader reader(bytes);
  for (std::uint32_t i = 0; i < column_count; ++i) {
    std::uint8_t code = 0;
    std::uint8_t encoding = 0;
    std::uint16_t reserved = 0;
    std::uint32_t size = 0;
    std::span<const std::byte> data;
    if (!reader.get(code) || !reader.get(encoding) || !reader.get(reserved) || !reader.get(size) ||
        !reader.get_bytes(size, data) || !reader.skip((8 - size % 8) % 8)) {
      return false;
    }
    const bool known = code < kStoredStatisticCount || code >= kColumnTensor;
    if (!known) continue;
    ColumnView column;
    if (!make_column_view(encoding, data, out.row_count, column)) return false;
    if (!place_column(code, column, out)) return false;
  }
  return true;
}

void fill_missing(Statistics& statistics, std::uint8_t code) {
  if (code < kCountFieldCount) {
    statistics.*kCountFields[code] = 0;
  } else {
    statistics.*kNumberFields[code - kCountFieldCount] = std::numeric_limits<double>::quiet_NaN();
  }
}

void decode_statistics(const EncodedStep& step, std::size_t first, std::span<StatisticsRow> rows) {
  const std::size_t last = first + rows.size();
  step.tensors.visit(first, last, [&](std::size_t i, auto value) {
    rows[i - first].tensor = static_cast<TensorId>(value);
  });
  step.layouts.visit(first, last, [&](std::size_t i, auto value) {
    rows[i - first].layout = static_cast<LayoutId>(value);
  });
  for (std::uint8_t code = 0; code < kStoredStatisticCount; ++code) {
    const ColumnView& column = step.statistics[code];
    if (!column.is_present()) {
      for (StatisticsRow& row : rows) fill_missing(row.statistics, code);
    } else if (code < kCountFieldCount) {
      const auto field = kCountFields[code];
      column.visit(first, last, [&](std::size_t i, auto value) {
        rows[i - first].statistics.*field = static_cast<std::uint64_t>(value);
      });
    } else {
      const auto field = kNumberFields[code - kCountFieldCount];
      column.visit(first, last, [&](std::size_t i, auto value) {
        rows[i - first].statistics.*field = static_cast<double>(value);
      });
    }
  }
}

}  // namespace

void encode_raw_entry(const RawEntry& entry, std::byte* out) {
  store(out, 0, entry.tensor);
  store(out, 4, entry.layout);
  store(out, 8, entry.data_offset);
  store(out, 16, entry.stored_size);
  store(out, 24, entry.raw_size);
  store(out, 32, entry.codec);
  store(out, 36, entry.data_crc);
}

RawEntry decode_raw_entry(const std::byte* bytes) noexcept {
  return {load<TensorId>(bytes, 0),       load<LayoutId>(bytes, 4),
          load<std::uint64_t>(bytes, 8),  load<std::uint64_t>(bytes, 16),
          load<std::uint64_t>(bytes, 24), load<std::uint32_t>(bytes, 32),
          load<std::uint32_t>(bytes, 36)};
}

void encode_text_entry(const TextEntry& entry, std::byte* out) {
  store(out, 0, entry.tensor);
  store(out, 4, entry.text_crc);
  store(out, 8, entry.offset);
  store(out, 16, entry.size);
}

TextEntry decode_text_entry(const std::byte* bytes) noexcept {
  return {load<TensorId>(bytes, 0), load<std::uint32_t>(bytes, 4), load<std::uint64_t>(bytes, 8),
          load<std::uint64_t>(bytes, 16)};
}

void StepEncoder::put_column(std::uint8_t code, Encoding encoding, auto values, ByteBuffer& out) {
  out.put(code);
  out.put(static_cast<std::uint8_t>(encoding));
  out.put(std::uint16_t{0});
  out.put(static_cast<std::uint32_t>(encoded_size(encoding, values.size())));
  encode_values(values, encoding, out);
  out.pad_to(kFrameAlignment);
}

void StepEncoder::put_columns(std::span<const StatisticsRow> rows, ByteBuffer& out) {
  const std::size_t count = rows.size();
  integers_.resize(count);
  numbers_.resize(count);
  const std::span<const std::uint64_t> integers(integers_);
  const std::span<const double> numbers(numbers_);
  for (std::size_t i = 0; i < count; ++i) integers_[i] = rows[i].tensor;
  // Never a constant for several rows: a reader takes the size of this column as proof of the
  // number of rows.
  put_column(kColumnTensor, choose_encoding(integers), integers, out);
  for (std::size_t i = 0; i < count; ++i) integers_[i] = rows[i].layout;
  put_column(kColumnLayout, choose_encoding(integers), integers, out);
  for (std::uint8_t code = 0; code < kCountFieldCount; ++code) {
    const auto field = kCountFields[code];
    for (std::size_t i = 0; i < count; ++i) integers_[i] = rows[i].statistics.*field;
    put_column(code, choose_encoding(integers), integers, out);
  }
  for (std::uint8_t code = kCountFieldCount; code < kStoredStatisticCount; ++code) {
    const auto field = kNumberFields[code - kCountFieldCount];
    for (std::size_t i = 0; i < count; ++i) numbers_[i] = rows[i].statistics.*field;
    put_column(code, choose_encoding(numbers), numbers, out);
  }
}

void StepEncoder::encode(const StepRecord& step, std::span<const RawEntry> raws,
                         std::span<const TextEntry> texts, ByteBuffer& out) {
  const std::size_t start = out.size();
  out.extend(kStepHeadSize);
  for (const RawEntry& raw : raws) encode_raw_entry(raw, out.extend(kRawEntrySize));
  for (const TextEntry& text : texts) encode_text_entry(text, out.extend(kTextEntrySize));
  StepCounts counts;
  counts.row_count = static_cast<std::uint32_t>(step.rows.size());
  counts.raw_count = static_cast<std::uint32_t>(raws.size());
  counts.text_count = static_cast<std::uint32_t>(texts.size());
  std::size_t section = out.size();
  if (!step.rows.empty()) {
    put_columns(step.rows, out);
    counts.column_count = kStoredStatisticCount + 2;
  }
  counts.columns_size = static_cast<std::uint32_t>(out.size() - section);
  section = out.size();
  encode_histograms(step.rows, out);
  counts.histograms_size = static_cast<std::uint32_t>(out.size() - section);
  out.pad_to(kFrameAlignment);
  encode_head(step.info, counts, out.data() + start);
}

RawEntry EncodedStep::raw(std::size_t index) const noexcept {
  return decode_raw_entry(raws.data() + index * kRawEntrySize);
}

TextEntry EncodedStep::text(std::size_t index) const noexcept {
  return decode_text_entry(texts.data() + index * kTextEntrySize);
}

std::size_t EncodedStep::find_row(TensorId wanted) const noexcept {
  std::size_t found = row_count;
  tensors.visit(0, row_count, [&](std::size_t row, auto value) {
    if (static_cast<std::uint64_t>(value) == wanted) found = row;
  });
  return found;
}

bool parse_step(std::span<const std::byte> payload, EncodedStep& out) noexcept {
  out = EncodedStep{};
  ByteReader reader(payload);
  StepCounts counts;
  if (!decode_head(reader, out.info, counts)) return false;
  out.row_count = counts.row_count;
  out.raw_count = counts.raw_count;
  out.text_count = counts.text_count;
  std::span<const std::byte> columns;
  if (!reader.get_bytes(std::size_t{counts.raw_count} * kRawEntrySize, out.raws) ||
      !reader.get_bytes(std::size_t{counts.text_count} * kTextEntrySize, out.texts) ||
      !reader.get_bytes(counts.columns_size, columns) ||
      !reader.get_bytes(counts.histograms_size, out.histograms)) {
    return false;
  }
  if (!parse_columns(columns, counts.column_count, out)) return false;
  if (out.row_count == 0) return true;
  if (!out.tensors.is_present() || !out.layouts.is_present()) return false;
  return out.row_count == 1 || !is_constant(out.tensors.encoding);
}

bool ids_are_valid(const EncodedStep& step, std::size_t tensor_count, std::size_t layout_count,
                   std::vector<bool>& seen) {
  if (step.row_count > tensor_count) return false;
  seen.assign(tensor_count, false);
  bool valid = true;
  step.tensors.visit(0, step.row_count, [&](std::size_t, auto value) {
    const auto id = static_cast<std::uint64_t>(value);
    if (id >= tensor_count || seen[id]) {
      valid = false;
    } else {
      seen[id] = true;
    }
  });
  step.layouts.visit(0, step.row_count, [&](std::size_t, auto value) {
    valid &= static_cast<std::uint64_t>(value) < layout_count;
  });
  for (std::size_t i = 0; i < step.raw_count; ++i) {
    const RawEntry raw = step.raw(i);
    valid &= raw.tensor < tensor_count && raw.layout < layout_count;
  }
  for (std::size_t i = 0; i < step.text_count; ++i) valid &= step.text(i).tensor < tensor_count;
  return valid;
}

bool decode_rows(const EncodedStep& step, std::vector<StatisticsRow>& rows) {
  rows.resize(step.row_count);
  if (step.row_count == 0) return true;
  decode_statistics(step, 0, rows);
  return decode_histograms(step.histograms, rows);
}

bool decode_row(const EncodedStep& step, std::size_t row, StatisticsRow& out) noexcept {
  decode_statistics(step, row, std::span(&out, 1));
  return decode_histogram(step.histograms, step.row_count, row, out);
}

void set_statistic(Statistics& statistics, std::uint8_t code, std::uint64_t value) noexcept {
  if (code < kCountFieldCount) {
    statistics.*kCountFields[code] = value;
  } else {
    statistics.*kNumberFields[code - kCountFieldCount] = static_cast<double>(value);
  }
}

void set_statistic(Statistics& statistics, std::uint8_t code, double value) noexcept {
  if (code >= kCountFieldCount) statistics.*kNumberFields[code - kCountFieldCount] = value;
}

}  // namespace tensortap::trace
