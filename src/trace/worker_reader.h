// The steps of one worker, out of all its segments. Used by trace/ only, behind WorkerSource. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/reader_context.h"
#include "trace/record_pool.h"
#include "trace/segment_index.h"
#include "trace/segment_scan.h"
#include "trace/trace_source.h"

namespace tensortap::trace {

class WorkerReader final : public WorkerSource {
 public:
  WorkerReader(std::string name, std::shared_ptr<ReaderContext> context);

  struct ListedSegment {
    std::string name;
    std::uint32_t sequence = 0;
    std::uint64_t size_bytes = 0;
  };
  // All segments of the worker, ascending. True when there are new steps or definitions.
  bool refresh(std::span<const ListedSegment> listed);
  bool set_has_ended(bool has_ended);
  // One more than the last session that wrote a segment.
  std::uint32_t next_session() const { return next_session_; }
  // Set when a segment was written by a newer major version.
  const std::string& unsupported() const { return unsupported_; }

  const std::string& name() const override { return name_; }
  bool has_ended() const override { return has_ended_; }
  const Dictionary& dictionary() const override { return dictionary_; }
  std::span<const StepInfo> steps() const override { return steps_; }
  std::vector<std::uint32_t> tensor_ordinals(TensorId tensor) const override;
  void read_column(TensorId tensor, StatisticId statistic, std::uint32_t first, std::uint32_t last,
                   SourceColumn& out) const override;
  std::optional<StatisticsRow> read_row(TensorId tensor, std::uint32_t ordinal) const override;
  std::optional<RawTensor> read_raw(TensorId tensor, std::uint32_t ordinal) const override;
  std::optional<std::string> read_text(TensorId tensor, std::uint32_t ordinal) const override;
  std::shared_ptr<const StepRecord> read_step(std::uint32_t ordinal) const override;

 private:
  // Sealed: `index`; otherwise `scan`.
  struct Segment {
    std::string name;
    std::uint32_t sequence = 0;
    std::uint64_t seen_size = 0;
    std::unique_ptr<SegmentScan> scan;
    std::unique_ptr<SegmentIndex> index;
    std::uint32_t first_ordinal = 0;
    std::uint32_t step_count = 0;  // that have an ordinal
    bool is_ignored = false;       // contradicts what came before

    const std::vector<StepEntry>& entries() const { return index ? index->steps() : scan->steps(); }
  };
  struct Place {
    const Segment* segment = nullptr;
    std::uint32_t local = 0;
  };

  bool update(Segment& segment);
  void open_index(Segment& segment, std::uint64_t file_size);
  bool take_dictionary(Segment& segment);
  bool take_steps(Segment& segment);
  void report(const Segment& segment, std::uint64_t offset, std::string what) const;

  std::optional<Place> find(std::uint32_t ordinal) const;
  bool use_file(const Segment& segment) const;
  // The step's frame, checked; points into the reader's window.
  bool load(const Place& place, EncodedStep& out) const;
  bool read_indexed(const Segment& segment, TensorId tensor, StatisticId statistic,
                    std::uint32_t first, std::uint32_t last, SourceColumn& out) const;
  void read_from_frames(const Segment& segment, TensorId tensor, StatisticId statistic,
                        std::uint32_t first, std::uint32_t last, SourceColumn& out) const;
  bool ordinals_in(const Segment& segment, TensorId tensor, std::vector<std::uint32_t>& out) const;
  std::vector<std::uint32_t> ordinals_from_frames(const Segment& segment, TensorId tensor) const;
  std::optional<BufferPool::Buffer> load_raw(const Segment& segment, const RawEntry& entry) const;
  std::optional<std::string> load_text(const Segment& segment, const TextEntry& entry) const;

  const std::string name_;
  const std::shared_ptr<ReaderContext> context_;
  bool has_ended_ = false;
  std::uint32_t next_session_ = 0;
  std::string unsupported_;
  Dictionary dictionary_;
  std::vector<StepInfo> steps_;
  std::vector<Segment> segments_;             // by sequence
  std::vector<std::size_t> filled_segments_;  // indices of those with steps, ascending

  mutable WindowReader reader_;
  mutable const Segment* reader_segment_ = nullptr;
  mutable std::uint32_t next_local_ = 0;  // where an ascending walk would go on
  mutable std::vector<bool> seen_;
  mutable RecordPool records_;
};

}  // namespace tensortap::trace
