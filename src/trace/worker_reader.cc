#include "trace/worker_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "trace/compression.h"
#include "trace/dictionary_codec.h"
#include "trace/format.h"

namespace tensortap::trace {
namespace {

// Steps closer together than this are worth reading at once.
constexpr std::uint64_t kNearBytes = 16u << 10;
// The most that zstd makes of a byte: a block of 128 KiB out of four bytes.
constexpr std::uint64_t kMaxExpansion = 32768;

// Bytes of a dense tensor; nothing on overflow.
std::optional<std::uint64_t> dense_size(const Layout& layout) {
  std::uint64_t size = dtype_size_bytes(layout.dtype);
  for (const std::int64_t length : layout.shape) {
    if (length == 0) return 0;
    const auto factor = static_cast<std::uint64_t>(length);
    if (size > UINT64_MAX / factor) return std::nullopt;
    size *= factor;
  }
  return size;
}

bool is_inside(std::uint64_t offset, std::uint64_t size, std::uint64_t file_size) {
  return offset <= file_size && size <= file_size - offset;
}

bool same_steps(const std::vector<StepEntry>& a, const std::vector<StepEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const StepEntry& x, const StepEntry& y) {
                      return x.frame_offset == y.frame_offset && x.info.step == y.info.step &&
                             x.info.mode == y.info.mode;
                    });
}

}  // namespace

WorkerReader::WorkerReader(std::string name, std::shared_ptr<ReaderContext> context)
    : name_(std::move(name)), context_(std::move(context)) {}

bool WorkerReader::set_has_ended(bool has_ended) {
  return std::exchange(has_ended_, has_ended) != has_ended;
}

void WorkerReader::report(const Segment& segment, std::uint64_t offset, std::string what) const {
  context_->problems.add({place(segment.name, offset), std::move(what)});
}

bool WorkerReader::refresh(std::span<const ListedSegment> listed) {
  bool changed = false;
  std::size_t next = 0;
  for (const ListedSegment& entry : listed) {
    while (next < segments_.size() && segments_[next].sequence < entry.sequence) ++next;
    if (next == segments_.size()) {
      reader_segment_ = nullptr;  // growing the vector moves the segments
      Segment& segment = segments_.emplace_back();
      segment.name = entry.name;
      segment.sequence = entry.sequence;
      changed |= update(segment);
      continue;
    }
    Segment& segment = segments_[next];
    // A segment that turned up behind a later one could only renumber steps.
    if (segment.sequence != entry.sequence) continue;
    if (segment.index == nullptr && segment.seen_size != entry.size_bytes)
      changed |= update(segment);
  }
  return changed;
}

// Reads what is new in a segment. The size is taken afresh: that a later segment is listed means
// that this one is complete now, not that it was when it was listed.
bool WorkerReader::update(Segment& segment) {
  if (segment.is_ignored || !use_file(segment)) return false;
  const std::uint64_t file_size = reader_.file()->size_bytes();
  segment.seen_size = file_size;
  if (segment.scan == nullptr) {
    open_index(segment, file_size);
    if (segment.index == nullptr) {
      segment.scan = std::make_unique<SegmentScan>(segment.name, /*check_everything=*/false);
    }
  }
  if (segment.index == nullptr) {
    segment.scan->advance(reader_, file_size);
    context_->problems.add(segment.scan->take_problems());
    if (segment.scan->header_state() == HeaderState::kUnsupported) {
      unsupported_ = segment.name;
      segment.is_ignored = true;
      return false;
    }
    if (segment.scan->header_state() == HeaderState::kValid) {
      next_session_ = std::max(next_session_, segment.scan->header().session + 1);
    }
  }
  const bool defined = take_dictionary(segment);
  const bool stepped = !segment.is_ignored && take_steps(segment);
  // Sealed while it was followed: the index says the same in less memory.
  if (segment.index == nullptr && segment.scan->has_trailer()) open_index(segment, file_size);
  return defined || stepped;
}

void WorkerReader::open_index(Segment& segment, std::uint64_t file_size) {
  std::unique_ptr<SegmentIndex> index;
  switch (SegmentIndex::open(reader_, file_size, index)) {
    case SegmentIndex::Outcome::kNotSealed:
      return;
    case SegmentIndex::Outcome::kDamaged:
      report(segment, file_size, "the index is damaged; the segment is read frame by frame");
      return;
    case SegmentIndex::Outcome::kOk:
      break;
  }
  Dictionary defined;
  if (!index->read_dictionary(reader_, defined)) {
    report(segment, index->index_offset(),
           "the definitions in the index are damaged; the segment is read frame by frame");
    return;
  }
  SegmentHeader header;
  if (segment.scan == nullptr) {
    // A damaged or a newer header is the business of the scan.
    if (!decode_segment_header(reader_.read(0, kSegmentHeaderSize, kSegmentHeaderSize), header) ||
        header.major != kMajorVersion || (header.features & ~kKnownFeatures) != 0) {
      return;
    }
    next_session_ = std::max(next_session_, header.session + 1);
  } else if (!same_steps(index->steps(), segment.scan->steps())) {
    return;
  }
  segment.index = std::move(index);
  segment.scan.reset();
}

// True when the worker's dictionary grew. Ignores the segment when it says something else than its
// predecessors.
bool WorkerReader::take_dictionary(Segment& segment) {
  const std::size_t before = dictionary_.tensors.size() + dictionary_.layouts.size();
  const bool agrees = segment.index != nullptr
                          ? segment.index->read_dictionary(reader_, dictionary_)
                          : merge_dictionary(segment.scan->dictionary(), dictionary_);
  if (!agrees) {
    report(segment, 0, "its definitions contradict those of earlier segments; it is left out");
    segment.is_ignored = true;
  }
  return dictionary_.tensors.size() + dictionary_.layouts.size() != before;
}

bool WorkerReader::take_steps(Segment& segment) {
  const std::vector<StepEntry>& entries = segment.entries();
  if (entries.size() == segment.step_count) return false;
  const std::size_t at = static_cast<std::size_t>(&segment - segments_.data());
  if (!filled_segments_.empty() && filled_segments_.back() > at) {
    report(segment, segment.seen_size,
           "it grew after a later segment had begun; new steps are left out");
    return false;
  }
  if (segment.step_count == 0) {
    segment.first_ordinal = static_cast<std::uint32_t>(steps_.size());
    filled_segments_.push_back(at);
  }
  for (std::size_t i = segment.step_count; i < entries.size(); ++i)
    steps_.push_back(entries[i].info);
  segment.step_count = static_cast<std::uint32_t>(entries.size());
  return true;
}

std::optional<WorkerReader::Place> WorkerReader::find(std::uint32_t ordinal) const {
  if (ordinal >= steps_.size()) return std::nullopt;
  const auto after = std::upper_bound(
      filled_segments_.begin(), filled_segments_.end(), ordinal,
      [&](std::uint32_t wanted, std::size_t at) { return wanted < segments_[at].first_ordinal; });
  const Segment& segment = segments_[*std::prev(after)];
  return Place{&segment, ordinal - segment.first_ordinal};
}

bool WorkerReader::use_file(const Segment& segment) const {
  if (reader_segment_ == &segment) return true;
  std::shared_ptr<const ReadableFile> file = context_->files.open(segment.name);
  if (file == nullptr) return false;
  reader_.reset(std::move(file));
  reader_segment_ = &segment;
  next_local_ = UINT32_MAX;
  return true;
}

bool WorkerReader::load(const Place& where, EncodedStep& out) const {
  const Segment& segment = *where.segment;
  const std::vector<StepEntry>& entries = segment.entries();
  const StepEntry& entry = entries[where.local];
  if (!use_file(segment)) return false;
  const auto size = static_cast<std::size_t>(kFrameHeaderSize + entry.payload_size);
  const bool walks = where.local == next_local_;
  next_local_ = where.local + 1;
  const bool next_is_near =
      next_local_ < entries.size() &&
      entries[next_local_].frame_offset - (entry.frame_offset + size) < kNearBytes;
  const std::span<const std::byte> bytes = reader_.read(
      entry.frame_offset, size, walks && next_is_near ? WindowReader::kAheadBytes : size);
  FrameHeader frame;
  const bool whole =
      bytes.size() == size && decode_frame_header(bytes, entry.frame_offset, frame) &&
      frame.is(FrameType::kStep) && frame.flags == 0 && frame.payload_size == entry.payload_size &&
      crc32c(bytes.subspan(kFrameHeaderSize)) == frame.payload_crc;
  const bool valid =
      whole && parse_step(bytes.subspan(kFrameHeaderSize), out) &&
      ids_are_valid(out, dictionary_.tensors.size(), dictionary_.layouts.size(), seen_);
  if (!valid)
    report(segment, entry.frame_offset, "a step fails its checksum; what it held is missing");
  return valid;
}

std::optional<StatisticsRow> WorkerReader::read_row(TensorId tensor, std::uint32_t ordinal) const {
  const std::optional<Place> where = find(ordinal);
  EncodedStep step;
  if (!where || !load(*where, step)) return std::nullopt;
  const std::size_t row = step.find_row(tensor);
  StatisticsRow out;
  if (row == step.row_count || !decode_row(step, row, out)) return std::nullopt;
  return out;
}

std::optional<RawTensor> WorkerReader::read_raw(TensorId tensor, std::uint32_t ordinal) const {
  const std::optional<Place> where = find(ordinal);
  EncodedStep step;
  if (!where || !load(*where, step)) return std::nullopt;
  for (std::size_t i = 0; i < step.raw_count; ++i) {
    const RawEntry entry = step.raw(i);
    if (entry.tensor != tensor) continue;
    std::optional<BufferPool::Buffer> data = load_raw(*where->segment, entry);
    if (!data) {
      report(*where->segment, entry.data_offset, "a raw value is damaged; it is missing");
      return std::nullopt;
    }
    return RawTensor{tensor, entry.layout, *std::move(data)};
  }
  return std::nullopt;
}

std::optional<BufferPool::Buffer> WorkerReader::load_raw(const Segment& segment,
                                                         const RawEntry& entry) const {
  const Layout& layout = dictionary_.layouts[entry.layout];
  const bool compressed = entry.codec == kCodecZstd;
  if (!is_inside(entry.data_offset, entry.stored_size, segment.seen_size)) return std::nullopt;
  if (!compressed && (entry.codec != kCodecNone || entry.stored_size != entry.raw_size)) {
    return std::nullopt;
  }
  if (compressed && entry.raw_size / kMaxExpansion > entry.stored_size) return std::nullopt;
  if (dense_size(layout) != entry.raw_size) return std::nullopt;
  BufferPool::Buffer stored =
      context_->buffers.acquire(static_cast<std::size_t>(entry.stored_size));
  const std::size_t count =
      reader_.file()->read_at(entry.data_offset, {stored.data.get(), stored.size_bytes});
  if (count != stored.size_bytes || crc32c(stored.bytes()) != entry.data_crc) return std::nullopt;
  if (!compressed) return stored;
  BufferPool::Buffer plain = context_->buffers.acquire(static_cast<std::size_t>(entry.raw_size));
  if (!decompress(stored.bytes(), {plain.data.get(), plain.size_bytes})) return std::nullopt;
  return plain;
}

std::optional<std::string> WorkerReader::read_text(TensorId tensor, std::uint32_t ordinal) const {
  const std::optional<Place> where = find(ordinal);
  EncodedStep step;
  if (!where || !load(*where, step)) return std::nullopt;
  for (std::size_t i = 0; i < step.text_count; ++i) {
    const TextEntry entry = step.text(i);
    if (entry.tensor == tensor) return load_text(*where->segment, entry);
  }
  return std::nullopt;
}

std::optional<std::string> WorkerReader::load_text(const Segment& segment,
                                                   const TextEntry& entry) const {
  if (is_inside(entry.offset, entry.size, segment.seen_size)) {
    std::string text(static_cast<std::size_t>(entry.size), '\0');
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(text));
    const std::size_t count = reader_.file()->read_at(entry.offset, bytes);
    if (count == text.size() && crc32c(bytes) == entry.text_crc) return text;
  }
  report(segment, entry.offset, "a text is damaged; it is missing");
  return std::nullopt;
}

std::shared_ptr<const StepRecord> WorkerReader::read_step(std::uint32_t ordinal) const {
  std::shared_ptr<StepRecord> record = records_.acquire();
  record->new_tensors.clear();
  record->new_layouts.clear();
  record->raws.clear();
  record->left_out_raws.clear();
  record->texts.clear();
  const std::optional<Place> where = find(ordinal);
  if (!where) {
    record->rows.clear();
    record->info = StepInfo{};
    return record;
  }
  record->info = steps_[ordinal];
  EncodedStep step;
  if (!load(*where, step) || !decode_rows(step, record->rows)) {
    record->rows.clear();
    return record;
  }
  for (std::size_t i = 0; i < step.raw_count; ++i) {
    record->left_out_raws.push_back(step.raw(i).tensor);
  }
  for (std::size_t i = 0; i < step.text_count; ++i) {
    const TextEntry entry = step.text(i);
    std::optional<std::string> text = load_text(*where->segment, entry);
    if (text) record->texts.push_back({entry.tensor, *std::move(text)});
  }
  return record;
}

}  // namespace tensortap::trace
