#include "trace/segment_writer.h"

#include <array>
#include <exception>
#include <utility>

#include "base/crc32c.h"
#include "trace/dictionary_codec.h"
#include "trace/format.h"
#include "trace/index_writer.h"

namespace tensortap::trace {
namespace {

// Below this, waking another thread costs more than the checksums.
constexpr std::size_t kParallelChecksumBytes = std::size_t{1} << 20;

constexpr std::array<std::byte, kFrameAlignment> kZeros{};

}  // namespace

ThreadPool& SegmentWriterResources::checksum_thread() {
  if (checksum_thread_ == nullptr) checksum_thread_ = std::make_unique<ThreadPool>(1);
  return *checksum_thread_;
}

Compressor& SegmentWriterResources::compressor() {
  if (compressor_ == nullptr) compressor_ = std::make_unique<Compressor>();
  return *compressor_;
}

// Frames that go into the file with one append: small pieces are collected in a buffer, large ones
// stay where they are.
class SegmentWriter::Batch {
 public:
  Batch(ByteBuffer& frames, std::uint64_t file_size) : frames_(frames), file_size_(file_size) {
    frames_.clear();
  }

  // Position in the file of whatever is added next.
  std::uint64_t offset() const { return file_size_ + size_; }

  void add_frame(FrameType type, std::span<const std::byte> payload) {
    add_header({static_cast<std::uint8_t>(type), 0, 0, payload.size(), offset(), crc32c(payload)});
    add_copied(payload);
    add_padding(payload.size());
  }
  // The payload must stay where it is until the batch is written.
  void add_borrowed_frame(FrameType type, std::span<const std::byte> payload) {
    add_header({static_cast<std::uint8_t>(type), 0, 0, payload.size(), offset(), crc32c(payload)});
    add_borrowed(payload);
    add_padding(payload.size());
  }
  // The data is 64-byte aligned in the file; its own checksum goes into the step. Gives its offset.
  std::uint64_t add_raw_frame(const RawEntry& raw, std::span<const std::byte> data) {
    const std::uint64_t payload_offset = offset() + kFrameHeaderSize;
    const std::uint64_t data_offset = round_up(payload_offset + kRawPreludeSize, kRawAlignment);
    const std::uint64_t data_start = data_offset - payload_offset;
    ByteBuffer& prelude = prelude_;
    prelude.clear();
    prelude.put(raw.tensor);
    prelude.put(raw.layout);
    prelude.put(static_cast<std::uint32_t>(data_start));
    prelude.put(raw.codec);
    prelude.put(std::uint64_t{data.size()});
    prelude.put(raw.raw_size);
    prelude.append_zeros(data_start - prelude.size());
    add_header({static_cast<std::uint8_t>(FrameType::kRaw), kFlagPartlyChecked,
                static_cast<std::uint16_t>(data_start / 8), data_start + data.size(), offset(),
                crc32c(prelude.bytes())});
    add_copied(prelude.bytes());
    add_borrowed(data);
    add_padding(data_start + data.size());
    return data_offset;
  }

  void append_to(WritableFile& file) {
    parts_.clear();
    for (const Piece& piece : pieces_) {
      parts_.push_back(piece.borrowed != nullptr
                           ? std::span<const std::byte>(piece.borrowed, piece.size)
                           : frames_.bytes(piece.start, piece.size));
    }
    file.append(parts_);
    file_size_ += size_;
    size_ = 0;
    pieces_.clear();
    frames_.clear();
  }

  void add_copied(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const std::size_t start = frames_.size();
    frames_.append(bytes.data(), bytes.size());
    if (!pieces_.empty() && pieces_.back().borrowed == nullptr) {
      pieces_.back().size += bytes.size();
    } else {
      pieces_.push_back({nullptr, start, bytes.size()});
    }
    size_ += bytes.size();
  }

 private:
  struct Piece {
    const std::byte* borrowed;  // or null: in frames_ from `start`
    std::size_t start;
    std::size_t size;
  };

  void add_header(const FrameHeader& header) {
    std::array<std::byte, kFrameHeaderSize> bytes;
    encode_frame_header(header, bytes.data());
    add_copied(bytes);
  }
  void add_borrowed(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    pieces_.push_back({bytes.data(), 0, bytes.size()});
    size_ += bytes.size();
  }
  void add_padding(std::uint64_t payload_size) {
    add_copied(std::span(kZeros).first((8 - payload_size % 8) % 8));
  }

  ByteBuffer& frames_;
  std::uint64_t file_size_;
  std::uint64_t size_ = 0;
  ByteBuffer prelude_;
  std::vector<Piece> pieces_;
  std::vector<std::span<const std::byte>> parts_;
};

SegmentWriter::SegmentWriter(Storage& storage, std::string name, const SegmentHeader& header,
                             const std::string& session_json, bool compress_raw,
                             SegmentWriterResources& resources)
    : storage_(storage),
      name_(std::move(name)),
      compress_raw_(compress_raw),
      resources_(resources),
      file_(storage.create(name_)) {
  Batch batch(resources_.frames, 0);
  std::array<std::byte, kSegmentHeaderSize> bytes;
  encode_segment_header(header, bytes.data());
  batch.add_copied(bytes);
  batch.add_frame(FrameType::kSession, std::as_bytes(std::span(session_json)));
  batch.append_to(*file_);
}

void SegmentWriter::append_step(const StepRecord& step, const Dictionary& dictionary) {
  Batch batch(resources_.frames, file_->size_bytes());
  resources_.raws.clear();
  resources_.texts.clear();
  add_dictionary(dictionary, batch);
  add_raws(step, batch);
  add_texts(step, batch);
  write_raws(step, batch);
  resources_.step.clear();
  resources_.encoder.encode(step, resources_.raws, resources_.texts, resources_.step);
  const StepEntry entry{step.info, batch.offset(), resources_.step.size()};
  batch.add_borrowed_frame(FrameType::kStep, resources_.step.bytes());
  batch.append_to(*file_);
  steps_.push_back(entry);
}

void SegmentWriter::add_dictionary(const Dictionary& dictionary, Batch& batch) {
  if (dictionary.tensors.size() == defined_tensors_ &&
      dictionary.layouts.size() == defined_layouts_) {
    return;
  }
  resources_.step.clear();
  encode_dictionary(dictionary, defined_tensors_, defined_layouts_, resources_.step);
  batch.add_frame(FrameType::kDictionary, resources_.step.bytes());
  defined_tensors_ = dictionary.tensors.size();
  defined_layouts_ = dictionary.layouts.size();
}

void SegmentWriter::add_raws(const StepRecord& step, Batch& batch) {
  if (compress_raw_ && resources_.compressed.size() < step.raws.size()) {
    resources_.compressed.resize(step.raws.size());
  }
  for (std::size_t i = 0; i < step.raws.size(); ++i) {
    const RawTensor& raw = step.raws[i];
    std::span<const std::byte> data = raw.data.bytes();
    RawEntry entry;
    entry.tensor = raw.tensor;
    entry.layout = raw.layout;
    entry.raw_size = data.size();
    if (compress_raw_) {
      ByteBuffer& compressed = resources_.compressed[i];
      compressed.clear();
      if (resources_.compressor().compress(data, compressed)) {
        entry.codec = kCodecZstd;
        data = compressed.bytes();
      }
    }
    entry.stored_size = data.size();
    entry.data_offset = batch.add_raw_frame(entry, data);
    resources_.raws.push_back(entry);
  }
}

void SegmentWriter::add_texts(const StepRecord& step, Batch& batch) {
  for (const TextValue& value : step.texts) {
    ByteBuffer& payload = resources_.step;
    payload.clear();
    payload.put(value.tensor);
    payload.append(value.text);
    TextEntry entry;
    entry.tensor = value.tensor;
    entry.text_crc = crc32c(std::as_bytes(std::span(value.text)));
    entry.offset = batch.offset() + kFrameHeaderSize + sizeof(TensorId);
    entry.size = value.text.size();
    batch.add_frame(FrameType::kText, payload.bytes());
    resources_.texts.push_back(entry);
  }
}

// The checksums of the data. They stand in the step, after the data, so large data is written by
// this thread while another one computes them.
void SegmentWriter::write_raws(const StepRecord& step, Batch& batch) {
  const auto compute_checksum = [&](std::size_t i) {
    RawEntry& entry = resources_.raws[i];
    const bool compressed = entry.codec == kCodecZstd;
    entry.data_crc =
        crc32c(compressed ? resources_.compressed[i].bytes() : step.raws[i].data.bytes());
  };
  std::uint64_t stored_size = 0;
  for (const RawEntry& entry : resources_.raws) stored_size += entry.stored_size;
  if (stored_size < kParallelChecksumBytes) {
    for (std::size_t i = 0; i < resources_.raws.size(); ++i) compute_checksum(i);
    return;
  }
  // One job a value: on a busy machine, whoever has written helps with the checksums that are left.
  std::exception_ptr error;
  resources_.checksum_thread().parallel_for(resources_.raws.size() + 1, [&](std::size_t job) {
    if (job > 0) return compute_checksum(job - 1);
    try {
      batch.append_to(*file_);
    } catch (...) {
      error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

void SegmentWriter::seal(const Dictionary& dictionary) {
  // What the segment did not use is not in its frames, so it is not in its index either.
  Dictionary defined;
  defined.tensors.assign(
      dictionary.tensors.begin(),
      dictionary.tensors.begin() + static_cast<std::ptrdiff_t>(defined_tensors_));
  defined.layouts.assign(
      dictionary.layouts.begin(),
      dictionary.layouts.begin() + static_cast<std::ptrdiff_t>(defined_layouts_));
  std::shared_ptr<const ReadableFile> readable = storage_.open_for_read(name_);
  if (readable != nullptr) append_index(std::move(readable), *file_, steps_, defined);
  file_->close();
}

}  // namespace tensortap::trace
