// Segments that were cut, flipped, torn, or made up: whole steps stay readable, nothing false is
// shown, and whatever is missing is reported.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "trace/format.h"
#include "trace/segment_scan.h"
#include "trace/trace_for_test.h"

namespace tensortap::trace {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using Steps = std::vector<std::shared_ptr<const StepRecord>>;

const std::string kSegment = segment_name("worker_0", 0);

struct Segment {
  Steps steps;
  Dictionary dictionary;
  std::string bytes;
  std::vector<StepEntry> entries;

  std::uint64_t end_of(std::size_t step) const {
    return entries[step].frame_offset + kFrameHeaderSize + entries[step].payload_size;
  }
};

Segment make_segment(unsigned seed, bool sealed) {
  RandomRun run(seed);
  Segment segment;
  segment.steps = run.make({.step_count = 5, .tensor_count = 3});
  segment.dictionary = run.dictionary;
  const auto storage = fresh_storage();
  TraceWriter writer(storage, {});
  for (const auto& step : segment.steps) EXPECT_TRUE(writer.submit(step));
  if (sealed) {
    writer.close();
  } else {
    EXPECT_TRUE(writer.flush(10'000'000'000));
  }
  segment.bytes = *storage->get(kSegment);
  WindowReader reader;
  reader.reset(storage->open_for_read(kSegment));
  SegmentScan scan(kSegment, true);
  scan.advance(reader, segment.bytes.size());
  segment.entries = scan.steps();
  EXPECT_EQ(segment.entries.size(), segment.steps.size());
  return segment;
}

std::shared_ptr<Storage> storage_with(std::string_view bytes) {
  auto storage = fresh_storage();
  storage->put(kSegment, bytes);
  return storage;
}

TEST(TruncatedSegmentTest, ExactlyTheStepsBeforeTheCutAreThere) {
  const Segment segment = make_segment(1, true);
  for (std::size_t cut = 0; cut < segment.bytes.size(); ++cut) {
    const auto storage = storage_with(std::string_view(segment.bytes).substr(0, cut));
    const auto source = open_trace(storage);
    const WorkerSource& worker = *source->workers().at(0);
    std::size_t expected = 0;
    while (expected < segment.steps.size() && segment.end_of(expected) <= cut) ++expected;
    ASSERT_EQ(worker.steps().size(), expected) << "cut at " << cut;
    for (std::uint32_t i = 0; i < expected; ++i) ASSERT_TRUE(is_step(worker, i, *segment.steps[i]));
    ASSERT_THAT(source->problems(), IsEmpty()) << "cut at " << cut;
    const VerifyReport report = verify_trace(*storage);
    ASSERT_EQ(report.step_count, expected);
    ASSERT_FALSE(report.segments.at(0).is_sealed);
  }
}

// Whether the columns of the shown steps hold only true values; `missing` counts those that are not
// there.
void expect_no_false_column(const WorkerSource& worker, const Segment& segment,
                            const std::vector<const StepRecord*>& shown, int& missing) {
  for (TensorId tensor = 0; tensor < worker.dictionary().tensors.size(); ++tensor) {
    ASSERT_EQ(worker.dictionary().tensors[tensor].name, segment.dictionary.tensors[tensor].name);
    for (const StatisticId id : {StatisticId::kCount, StatisticId::kMean, StatisticId::kL2}) {
      SourceColumn column;
      worker.read_column(tensor, id, 0, UINT32_MAX, column);
      std::size_t at = 0;
      for (std::uint32_t i = 0; i < shown.size(); ++i) {
        for (const StatisticsRow& row : shown[i]->rows) {
          if (row.tensor != tensor) continue;
          if (at == column.values.size() || column.ordinals[at] != i) {
            ++missing;
            continue;
          }
          const double expected = statistic_value(row.statistics, id);
          ASSERT_TRUE(column.values[at] == expected ||
                      (std::isnan(column.values[at]) && std::isnan(expected)));
          ++at;
        }
      }
      ASSERT_EQ(at, column.values.size());
    }
  }
}

// Whether everything that `source` shows is true; `missing` counts what it does not show.
void expect_nothing_false(const TraceSource& source, const Segment& segment, int& missing) {
  ASSERT_EQ(source.workers().size(), 1u);
  const WorkerSource& worker = *source.workers()[0];
  std::map<std::int64_t, const StepRecord*> originals;
  for (const auto& step : segment.steps) originals[step->info.step] = step.get();
  missing += static_cast<int>(segment.steps.size() - worker.steps().size());
  std::vector<const StepRecord*> shown;
  for (std::uint32_t i = 0; i < worker.steps().size(); ++i) {
    const StepRecord* original = originals[worker.steps()[i].step];
    ASSERT_NE(original, nullptr);
    shown.push_back(original);
    ASSERT_TRUE(same_info(worker.steps()[i], original->info));
    const auto step = worker.read_step(i);
    if (step->rows.size() != original->rows.size()) {
      ASSERT_TRUE(step->rows.empty());
      ++missing;
    }
    for (std::size_t r = 0; r < step->rows.size(); ++r) {
      ASSERT_TRUE(same_row(step->rows[r], original->rows[r]));
    }
    for (const RawTensor& raw : original->raws) {
      const auto read = worker.read_raw(raw.tensor, i);
      if (!read) ++missing;
      ASSERT_TRUE(!read || same_raw(*read, raw));
    }
    for (const TextValue& text : original->texts) {
      const auto read = worker.read_text(text.tensor, i);
      if (!read) ++missing;
      ASSERT_TRUE(!read || *read == text.text);
    }
  }
  expect_no_false_column(worker, segment, shown, missing);
}

class FlippedSegmentTest : public ::testing::TestWithParam<bool> {};

TEST_P(FlippedSegmentTest, NothingFalseIsShownAndWhatIsMissingIsReported) {
  const Segment segment = make_segment(2, GetParam());
  for (const unsigned char mask : {0x01, 0x80, 0xFF}) {
    for (std::size_t at = 0; at < segment.bytes.size(); ++at) {
      std::string bytes = segment.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      const auto storage = storage_with(bytes);
      const auto source = open_trace(storage);
      int missing = 0;
      expect_nothing_false(*source, segment, missing);
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "byte " << at << " ^ " << int{mask};
      ASSERT_TRUE(missing == 0 || !source->problems().empty()) << "byte " << at;
      ASSERT_FALSE(verify_trace(*storage).is_clean()) << "byte " << at << " ^ " << int{mask};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SealedOrNot, FlippedSegmentTest, ::testing::Bool());

TEST(DamagedSegmentTest, AHoleCostsTheStepsInItAndNoOthers) {
  const Segment segment = make_segment(3, false);
  std::string bytes = segment.bytes;
  // From inside step 1 to inside step 3, whose frame header is gone too.
  const std::size_t from = segment.entries[1].frame_offset + 5;
  const std::size_t to = segment.entries[3].frame_offset + 40;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from),
            bytes.begin() + static_cast<std::ptrdiff_t>(to), '\0');
  const auto source = open_trace(storage_with(bytes));
  const WorkerSource& worker = *source->workers().at(0);
  EXPECT_TRUE(is_step(worker, 0, *segment.steps[0]));
  EXPECT_THAT(source->problems(), Not(IsEmpty()));
  // Definitions inside the hole may be lost; without any, the last step must be there.
  const bool defines =
      !segment.steps[1]->new_tensors.empty() || !segment.steps[2]->new_tensors.empty() ||
      !segment.steps[3]->new_tensors.empty() || !segment.steps[2]->new_layouts.empty() ||
      !segment.steps[3]->new_layouts.empty();
  if (!defines) {
    ASSERT_EQ(worker.steps().size(), 2u);
    EXPECT_TRUE(is_step(worker, 1, *segment.steps[4]));
  }
}

TEST(DamagedSegmentTest, ATensorThatHoldsATraceIsNotTakenForOne) {
  const Segment inner = make_segment(4, false);
  // A raw value whose bytes are a segment; then the frame header in front of it is destroyed, so
  // that the reader must search.
  BufferPool pool(1 << 20);
  auto step = std::make_shared<StepRecord>();
  step->new_tensors = {{"trap", {}}};
  step->new_layouts = {{DType::kUInt8, {static_cast<std::int64_t>(inner.bytes.size())}}};
  RawTensor raw;
  raw.data = pool.acquire(inner.bytes.size());
  std::memcpy(raw.data.data.get(), inner.bytes.data(), inner.bytes.size());
  step->raws.push_back(raw);
  const auto storage = fresh_storage();
  write_steps(storage, {}, {step});
  std::string bytes = *storage->get(kSegment);
  const std::size_t data = bytes.find(inner.bytes.substr(0, 64), kSegmentHeaderSize);
  ASSERT_NE(data, std::string::npos);
  for (std::size_t i = data - 64; i < data; ++i) bytes[i] = 0;
  bytes.resize(bytes.size() - 1);  // no index either
  const auto source = open_trace(storage_with(bytes));
  ASSERT_EQ(source->workers().at(0)->steps().size(), 1u);
  EXPECT_EQ(source->workers()[0]->steps()[0].step, step->info.step);
  EXPECT_EQ(source->workers()[0]->dictionary().tensors.at(0).name, "trap");
}

TEST(DamagedSegmentTest, AFileThatIsNoTraceIsReportedAndEmpty) {
  const auto storage = storage_with(
      "this is not a trace, but it is long enough to hold a header of 64 bytes and more");
  const auto source = open_trace(storage);
  EXPECT_THAT(source->workers().at(0)->steps(), IsEmpty());
  EXPECT_THAT(source->problems(), Not(IsEmpty()));
  EXPECT_FALSE(verify_trace(*storage).is_clean());
}

void patch_header(std::string& bytes, std::size_t offset, std::uint16_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).first(60));
  std::memcpy(bytes.data() + 60, &crc, sizeof crc);
}

TEST(VersionTest, ANewerMajorVersionIsRefusedAndANewerMinorOneRead) {
  const Segment segment = make_segment(5, true);
  std::string newer_minor = segment.bytes;
  patch_header(newer_minor, 10, kMinorVersion + 1);
  EXPECT_EQ(open_trace(storage_with(newer_minor))->workers().at(0)->steps().size(), 5u);
  for (const std::size_t offset : {std::size_t{8}, std::size_t{48}}) {  // version, required feature
    std::string newer = segment.bytes;
    patch_header(newer, offset, 2);
    try {
      open_trace(storage_with(newer));
      ADD_FAILURE() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

// A frame as a newer or a hostile writer could make it.
std::string frame(std::uint8_t type, std::uint64_t offset, std::string_view payload,
                  std::uint64_t claimed_size) {
  FrameHeader header;
  header.type = type;
  header.payload_size = claimed_size;
  header.offset = offset;
  header.payload_crc = crc32c(std::as_bytes(std::span(payload)));
  std::array<std::byte, kFrameHeaderSize> bytes;
  encode_frame_header(header, bytes.data());
  std::string out(bytes.size(), '\0');
  std::memcpy(out.data(), bytes.data(), bytes.size());
  out += payload;
  out.resize(round_up(out.size(), kFrameAlignment));
  return out;
}

TEST(HostileSegmentTest, UnknownFramesAreSkipped) {
  RandomRun run(6);
  const auto storage = fresh_storage();
  TraceWriter writer(storage, {});
  ASSERT_TRUE(writer.submit(run.make_step({})));
  ASSERT_TRUE(writer.flush(10'000'000'000));
  std::string bytes = *storage->get(kSegment);
  bytes += frame(200, bytes.size(), "from the future", 15);
  const auto source = open_trace(storage_with(bytes));
  EXPECT_EQ(source->workers().at(0)->steps().size(), 1u);
  EXPECT_THAT(source->problems(), IsEmpty());
}

TEST(HostileSegmentTest, ClaimedSizesAreNotBelieved) {
  const Segment segment = make_segment(7, false);
  const std::uint64_t end = segment.bytes.size();
  std::string step_head(kStepHeadSize, '\0');
  step_head[36] = 1;   // TRAIN
  step_head[38] = 64;  // head size
  for (const std::size_t field : {40, 44, 48, 52, 56, 60}) {
    std::string payload = step_head;
    const std::uint32_t huge = 0xFFFFFFF0u;
    std::memcpy(payload.data() + field, &huge, sizeof huge);
    const auto source =
        open_trace(storage_with(segment.bytes + frame(5, end, payload, payload.size())));
    // Columns are counted by column_count and sized by columns_size, so a count alone asks for
    // nothing.
    EXPECT_EQ(source->workers().at(0)->steps().size(), 5u) << field;
    EXPECT_THAT(source->problems(), Not(IsEmpty())) << field;
  }
  std::string dictionary(16, '\0');
  const std::uint32_t huge = 0xFFFFFFF0u;
  std::memcpy(dictionary.data() + 4, &huge, sizeof huge);
  EXPECT_THAT(open_trace(storage_with(segment.bytes + frame(2, end, dictionary, 16)))->problems(),
              Not(IsEmpty()));
  // A frame that claims to be longer than any file: nothing can follow it, and nothing is allocated
  // for it.
  const auto endless =
      open_trace(storage_with(segment.bytes + frame(5, end, "x", kMaxPayloadSize)));
  EXPECT_EQ(endless->workers().at(0)->steps().size(), 5u);
}

TEST(DamagedSegmentTest, SegmentsThatContradictEachOtherAreNotMixed) {
  RandomRun run(8);
  RandomRun other(8);
  other.dictionary.tensors = {{"something else", {}}};
  const auto storage = fresh_storage();
  write_steps(storage, {}, run.make({.step_count = 3}));
  auto step = std::make_shared<StepRecord>();
  step->new_tensors = other.dictionary.tensors;
  write_steps(storage, {}, {step});  // a writer that did not resume
  const auto source = open_trace(storage);
  EXPECT_EQ(source->workers().at(0)->steps().size(), 3u);
  EXPECT_THAT(source->problems(), Not(IsEmpty()));
  EXPECT_EQ(source->workers()[0]->dictionary().tensors[0].name, run.dictionary.tensors[0].name);
}

}  // namespace
}  // namespace tensortap::trace
