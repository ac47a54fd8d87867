#include "trace/index_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "trace/compression.h"
#include "trace/dictionary_codec.h"
#include "trace/format.h"
#include "trace/index_format.h"
#include "trace/statistic_fields.h"

namespace tensortap::trace {
namespace {

// Values held while columns are turned; more rows mean more passes over the steps, not more memory.
constexpr std::size_t kScratchBytes = std::size_t{12} << 20;
constexpr std::size_t kMinCompressedBytes = 64;

template <class Entry>
struct Located {
  std::uint32_t ordinal;
  Entry entry;
};

class IndexWriter {
 public:
  IndexWriter(std::shared_ptr<const ReadableFile> readable, WritableFile& written,
              std::span<const StepEntry> steps, const Dictionary& dictionary)
      : written_(written), steps_(steps), dictionary_(dictionary) {
    reader_.reset(std::move(readable));
  }

  void write() {
    survey();
    write_row_columns();
    write_value_columns(raws_, kColumnRaw, kRawEntrySize, &encode_raw_entry);
    write_value_columns(texts_, kColumnText, kTextEntrySize, &encode_text_entry);
    append_columns_frame();
    append_index_frame();
  }

 private:
  // The step with this ordinal; points into the reader's window.
  EncodedStep load(std::size_t ordinal, bool check) {
    const StepEntry& entry = steps_[ordinal];
    const auto size = static_cast<std::size_t>(entry.payload_size);
    const std::span<const std::byte> bytes =
        reader_.read(entry.frame_offset, kFrameHeaderSize + size);
    FrameHeader frame;
    EncodedStep view;
    const bool whole = bytes.size() == kFrameHeaderSize + size &&
                       decode_frame_header(bytes, entry.frame_offset, frame) &&
                       (!check || crc32c(bytes.subspan(kFrameHeaderSize)) == frame.payload_crc) &&
                       parse_step(bytes.subspan(kFrameHeaderSize), view);
    if (!whole) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("a step does not read back as it was written, at byte {}",
                              entry.frame_offset));
    }
    return view;
  }

  // What every tensor has, so that the later passes know where each value goes.
  void survey() {
    rows_by_tensor_.assign(dictionary_.tensors.size(), 0);
    columns_by_tensor_.resize(dictionary_.tensors.size());
    for (std::uint32_t ordinal = 0; ordinal < steps_.size(); ++ordinal) {
      const EncodedStep view = load(ordinal, true);
      view.tensors.visit(0, view.row_count, [&](std::size_t, auto tensor) {
        ++rows_by_tensor_.at(static_cast<std::size_t>(tensor));
      });
      for (std::size_t i = 0; i < view.raw_count; ++i) raws_.push_back({ordinal, view.raw(i)});
      for (std::size_t i = 0; i < view.text_count; ++i) texts_.push_back({ordinal, view.text(i)});
    }
    first_row_.resize(rows_by_tensor_.size());
    for (std::size_t tensor = 0; tensor < rows_by_tensor_.size(); ++tensor) {
      first_row_[tensor] = row_count_;
      row_count_ += rows_by_tensor_[tensor];
    }
  }

  void write_row_columns() {
    if (row_count_ == 0) return;
    std::vector<std::uint8_t> codes = {kColumnOrdinal, kColumnLayout};
    for (std::uint8_t code = 0; code < kStoredStatisticCount; ++code) codes.push_back(code);
    const std::size_t group_size =
        std::clamp<std::size_t>(kScratchBytes / (8 * row_count_), 1, codes.size());
    scratch_.resize(group_size * row_count_);
    for (std::size_t first = 0; first < codes.size(); first += group_size) {
      const std::size_t count = std::min(group_size, codes.size() - first);
      const std::span<const std::uint8_t> group = std::span(codes).subspan(first, count);
      gather(group);
      for (std::size_t tensor = 0; tensor < rows_by_tensor_.size(); ++tensor) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          put_row_column(tensor, group[i], scratch_.data() + i * row_count_ + first_row_[tensor]);
        }
      }
      append_columns_frame();
    }
  }

  // One pass over the steps: the bits of these columns, tensor by tensor.
  void gather(std::span<const std::uint8_t> codes) {
    next_row_ = first_row_;
    for (std::size_t ordinal = 0; ordinal < steps_.size(); ++ordinal) {
      const EncodedStep view = load(ordinal, false);
      target_.resize(view.row_count);
      view.tensors.visit(0, view.row_count, [&](std::size_t row, auto tensor) {
        target_[row] = next_row_[static_cast<std::size_t>(tensor)]++;
      });
      for (std::size_t i = 0; i < codes.size(); ++i) {
        gather_column(view, codes[i], ordinal, scratch_.data() + i * row_count_);
      }
    }
  }

  void gather_column(const EncodedStep& view, std::uint8_t code, std::size_t ordinal,
                     std::uint64_t* out) {
    const auto take = [&](std::size_t row, auto value) {
      out[target_[row]] = std::bit_cast<std::uint64_t>(value);
    };
    if (code == kColumnOrdinal) {
      for (const std::size_t target : target_) out[target] = ordinal;
    } else if (code == kColumnLayout) {
      view.layouts.visit(0, view.row_count, take);
    } else if (view.statistics[code].is_present()) {
      view.statistics[code].visit(0, view.row_count, take);
    } else {
      const double nothing =
          code < kCountFieldCount ? 0.0 : std::numeric_limits<double>::quiet_NaN();
      for (std::size_t row = 0; row < view.row_count; ++row) take(row, nothing);
    }
  }

  void put_row_column(std::size_t tensor, std::uint8_t code, const std::uint64_t* bits) {
    const std::size_t count = rows_by_tensor_[tensor];
    if (count == 0 || (code == kColumnOrdinal && count == steps_.size())) return;
    TensorColumn column;
    column.code = code;
    plain_.clear();
    if (code >= kCountFieldCount && code < kStoredStatisticCount) {
      numbers_.resize(count);
      std::memcpy(numbers_.data(), bits, count * sizeof(double));
      encode(std::span<const double>(numbers_), column);
    } else {
      encode(std::span<const std::uint64_t>(bits, count), column);
    }
    columns_by_tensor_[tensor].push_back(column);
  }

  template <class T>
  void encode(std::span<const T> values, TensorColumn& column) {
    const Encoding encoding = choose_encoding(values);
    column.encoding = static_cast<std::uint8_t>(encoding);
    if (is_constant(encoding)) {
      column.offset = std::bit_cast<std::uint64_t>(values.front());
      return;
    }
    encode_values(values, encoding, plain_);
    store(encoding_width(encoding), column);
  }

  // Adds plain_ to the columns, compressed where that pays, and notes where it lies.
  void store(std::size_t width, TensorColumn& column) {
    column.decoded_size = plain_.size();
    const std::size_t start = columns_.size();
    bool compressed = false;
    if (plain_.size() >= kMinCompressedBytes) {
      std::span<const std::byte> bytes = plain_.bytes();
      if (width > 1) {
        shuffled_.clear();
        shuffle(bytes, width, shuffled_.extend(bytes.size()));
        bytes = shuffled_.bytes();
      }
      compressed = compressor_.compress(bytes, columns_);
    }
    if (compressed) {
      column.codec = kCodecZstd;
      column.shuffle_width = width > 1 ? static_cast<std::uint8_t>(width) : 0;
    } else {
      columns_.append(plain_.data(), plain_.size());
    }
    column.stored_size = columns_.size() - start;
    column.crc = crc32c(columns_.bytes(start, column.stored_size));
    column.offset = written_.size_bytes() + kFrameHeaderSize + start;
    columns_.pad_to(kFrameAlignment);
  }

  template <class Entry>
  void write_value_columns(std::vector<Located<Entry>>& values, std::uint8_t code,
                           std::size_t entry_size, void (*encode_entry)(const Entry&, std::byte*)) {
    std::stable_sort(values.begin(), values.end(),
                     [](const auto& a, const auto& b) { return a.entry.tensor < b.entry.tensor; });
    for (std::size_t first = 0; first < values.size();) {
      const TensorId tensor = values[first].entry.tensor;
      plain_.clear();
      for (; first < values.size() && values[first].entry.tensor == tensor; ++first) {
        plain_.put(values[first].ordinal);
        plain_.put(std::uint32_t{0});
        encode_entry(values[first].entry, plain_.extend(entry_size));
      }
      TensorColumn column;
      column.code = code;
      store(1, column);
      columns_by_tensor_.at(tensor).push_back(column);
    }
  }

  void append_columns_frame() {
    if (columns_.size() == 0) return;
    append_frame(FrameType::kColumns, columns_);
    columns_.clear();
  }

  void append_index_frame() {
    const std::uint64_t frame_offset = written_.size_bytes();
    ByteBuffer index;
    index.extend(kIndexHeadSize);
    const auto close_block = [&](std::size_t start) {
      BlockRef block;
      block.offset = frame_offset + kFrameHeaderSize + start;
      block.size = index.size() - start;
      block.crc = crc32c(index.bytes(start, index.size() - start));
      index.pad_to(kFrameAlignment);
      return block;
    };
    IndexHead head;
    head.step_count = steps_.size();
    head.tensor_count = static_cast<std::uint32_t>(dictionary_.tensors.size());
    head.layout_count = static_cast<std::uint32_t>(dictionary_.layouts.size());
    std::size_t start = index.size();
    for (const StepEntry& step : steps_) encode_step_entry(step, index.extend(kIndexStepSize));
    head.steps = close_block(start);
    start = index.size();
    encode_dictionary(dictionary_, 0, 0, index);
    head.dictionary = close_block(start);
    start = index.size();
    append_directory(frame_offset + kFrameHeaderSize, index);
    head.directory = close_block(start);
    append_tensors(index);
    head.rest_crc = crc32c(index.bytes(kIndexHeadSize, index.size() - kIndexHeadSize));
    encode_index_head(head, index.data());
    append_frame(FrameType::kIndex, index);
    append_trailer(frame_offset, index.size());
  }

  // The entries say where append_tensors() will put the tensors.
  void append_directory(std::uint64_t payload_offset, ByteBuffer& index) {
    ByteBuffer tensors;
    append_tensors(tensors);
    const std::size_t directory_size = columns_by_tensor_.size() * kDirectoryEntrySize;
    std::uint64_t offset = payload_offset + index.size() + directory_size;
    std::size_t start = 0;
    for (const std::vector<TensorColumn>& columns : columns_by_tensor_) {
      const std::size_t size =
          columns.empty() ? 0 : kTensorHeadSize + columns.size() * kTensorColumnSize;
      index.put(size == 0 ? std::uint64_t{0} : offset + start);
      index.put(static_cast<std::uint32_t>(size));
      index.put(crc32c(tensors.bytes(start, size)));
      start += size;
    }
  }

  void append_tensors(ByteBuffer& index) {
    for (std::size_t tensor = 0; tensor < columns_by_tensor_.size(); ++tensor) {
      const std::vector<TensorColumn>& columns = columns_by_tensor_[tensor];
      if (columns.empty()) continue;
      const std::uint32_t rows = rows_by_tensor_[tensor];
      const bool every_step = rows > 0 && rows == steps_.size();
      encode_tensor_head(
          {static_cast<TensorId>(tensor), rows, static_cast<std::uint32_t>(columns.size()),
           every_step ? kTensorFlagEveryStep : 0},
          index.extend(kTensorHeadSize));
      for (const TensorColumn& column : columns) {
        encode_tensor_column(column, index.extend(kTensorColumnSize));
      }
    }
  }

  void append_trailer(std::uint64_t index_offset, std::uint64_t index_size) {
    const std::uint64_t file_size = written_.size_bytes() + kFrameHeaderSize + kTrailerSize;
    ByteBuffer payload;
    encode_trailer({index_offset, index_size, file_size}, payload.extend(kTrailerSize));
    append_frame(FrameType::kTrailer, payload);
  }

  // Opening a run reads the head of the index and not the rest, so only that is covered by the
  // frame's checksum.
  void append_frame(FrameType type, ByteBuffer& payload) {
    FrameHeader frame;
    frame.type = static_cast<std::uint8_t>(type);
    frame.payload_size = payload.size();
    if (type == FrameType::kIndex) {
      frame.flags = kFlagPartlyChecked;
      frame.checked_units = kIndexHeadSize / 8;
    }
    frame.offset = written_.size_bytes();
    frame.payload_crc = crc32c(payload.bytes(0, static_cast<std::size_t>(frame.checked_size())));
    payload.pad_to(kFrameAlignment);
    std::byte header[kFrameHeaderSize];
    encode_frame_header(frame, header);
    const std::span<const std::byte> parts[] = {header, payload.bytes()};
    written_.append(parts);
  }

  WindowReader reader_;
  WritableFile& written_;
  const std::span<const StepEntry> steps_;
  const Dictionary& dictionary_;

  std::vector<std::uint32_t> rows_by_tensor_;
  std::vector<std::size_t> first_row_;  // of a tensor, in a gathered column
  std::size_t row_count_ = 0;
  std::vector<Located<RawEntry>> raws_;
  std::vector<Located<TextEntry>> texts_;
  std::vector<std::vector<TensorColumn>> columns_by_tensor_;

  std::vector<std::uint64_t> scratch_;
  std::vector<std::size_t> next_row_;
  std::vector<std::size_t> target_;  // of each row of the step at hand
  std::vector<double> numbers_;
  ByteBuffer plain_;
  ByteBuffer shuffled_;
  ByteBuffer columns_;  // payload of the next COLUMNS frame
  Compressor compressor_;
};

}  // namespace

void append_index(std::shared_ptr<const ReadableFile> readable, WritableFile& written,
                  std::span<const StepEntry> steps, const Dictionary& dictionary) {
  IndexWriter(std::move(readable), written, steps, dictionary).write();
}

}  // namespace tensortap::trace
