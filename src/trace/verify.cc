// Reads every byte of a run and says what is readable.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "trace/dictionary_codec.h"
#include "trace/names.h"
#include "trace/segment_index.h"
#include "trace/segment_scan.h"
#include "trace/trace_reader.h"

namespace tensortap {
namespace {

using trace::HeaderState;
using trace::SegmentIndex;
using trace::SegmentScan;
using trace::WindowReader;

// Every column of every tensor; nothing when all are whole and agree with the frames.
std::string check_index(WindowReader& reader, const SegmentIndex& index, const SegmentScan& scan) {
  if (!index.is_whole(reader)) return "the index fails its checksum";
  Dictionary defined;
  if (!index.read_dictionary(reader, defined)) return "the definitions in the index are damaged";
  Dictionary merged = scan.dictionary();
  if (!trace::merge_dictionary(defined, merged)) return "the index contradicts the definitions";
  const auto& indexed = index.steps();
  const bool agrees =
      std::equal(indexed.begin(), indexed.end(), scan.steps().begin(), scan.steps().end(),
                 [](const auto& a, const auto& b) { return a.frame_offset == b.frame_offset; });
  if (!agrees) return "the index lists other steps than the segment holds";
  for (TensorId tensor = 0; tensor < index.head().tensor_count; ++tensor) {
    trace::TensorIndex entry;
    std::vector<std::uint32_t> ordinals;
    if (!index.read_tensor(reader, tensor, entry) ||
        !index.read_all_ordinals(reader, entry, ordinals)) {
      return fmt::format("the index of tensor {} is damaged", tensor);
    }
    if (ordinals != scan.tensor_ordinals(tensor)) {
      return fmt::format("the index of tensor {} lists other steps than the segment holds", tensor);
    }
    for (const trace::TensorColumn& column : entry.columns) {
      trace::DecodedColumn decoded;
      const bool is_record = column.code == trace::kColumnRaw || column.code == trace::kColumnText;
      if (!is_record && !index.read_column(reader, entry, column, decoded)) {
        return fmt::format("column {} of tensor {} is damaged in the index", column.code, tensor);
      }
    }
  }
  return "";
}

// Of a file too short for a segment header: whether what is there may be the start of one.
bool starts_like_segment(WindowReader& reader) {
  const std::span<const std::byte> start = reader.read(0, trace::kSegmentMagic.size());
  return start.empty() || std::memcmp(start.data(), trace::kSegmentMagic.data(), start.size()) == 0;
}

SegmentReport verify_segment(const Storage& storage, const StorageEntry& entry) {
  SegmentReport report;
  report.name = entry.name;
  std::shared_ptr<const ReadableFile> file = storage.open_for_read(entry.name);
  if (file == nullptr) return report;
  report.size_bytes = file->size_bytes();
  WindowReader reader;
  reader.reset(file);
  SegmentScan scan(entry.name, /*check_everything=*/true);
  scan.advance(reader, report.size_bytes);
  report.problems = scan.take_problems();
  report.frame_count = scan.frame_count();
  report.step_count = scan.steps().size();
  report.readable_bytes = std::min(scan.position(), report.size_bytes);
  const auto add = [&](std::uint64_t offset, std::string what) {
    report.problems.push_back({trace::place(entry.name, offset), std::move(what)});
  };
  if (!scan.is_in_damage() && scan.header_state() != HeaderState::kUnsupported &&
      scan.position() < report.size_bytes) {
    if (scan.header_state() == HeaderState::kMissing && !starts_like_segment(reader)) {
      add(0, "this is no trace segment");
      return report;
    }
    report.torn_tail_bytes = report.size_bytes - scan.position();
    add(scan.position(),
        fmt::format("the file ends inside a frame: the writer was killed or the file "
                    "was cut short; the last {} bytes are lost",
                    report.size_bytes - scan.position()));
  }
  if (!scan.has_trailer()) return report;
  std::unique_ptr<SegmentIndex> index;
  const SegmentIndex::Outcome outcome = SegmentIndex::open(reader, report.size_bytes, index);
  report.is_sealed = outcome == SegmentIndex::Outcome::kOk;
  if (!report.is_sealed) {
    add(report.size_bytes, "the index is damaged; the segment is read frame by frame");
    return report;
  }
  const std::string problem = check_index(reader, *index, scan);
  if (!problem.empty()) add(index->index_offset(), problem);
  return report;
}

}  // namespace

bool VerifyReport::is_clean() const {
  return std::all_of(segments.begin(), segments.end(),
                     [](const SegmentReport& segment) { return segment.problems.empty(); });
}

VerifyReport verify_trace(const Storage& storage) {
  VerifyReport report;
  for (const StorageEntry& entry : storage.list(trace::kTraceFolder)) {
    if (!trace::parse_segment_name(entry.name)) continue;
    report.segments.push_back(verify_segment(storage, entry));
    report.step_count += report.segments.back().step_count;
  }
  return report;
}

}  // namespace tensortap
