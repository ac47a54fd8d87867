// Opens a native run for reading: sealed segments through their columnar index, the growing one
// frame by frame, damaged ones as far as their checksums hold. Safe on hostile bytes: lengths are
// checked before use. Used by trial/ and `tensortap verify`. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/storage.h"
#include "trace/trace_source.h"

namespace tensortap {

// Throws Error(kNotFound) when there is no run at the storage's root, Error(kUnsupported) for a
// newer major version.
std::shared_ptr<TraceSource> open_trace(std::shared_ptr<Storage> storage);

// What `tensortap verify` prints: every frame of every segment is read and its checksum computed.
struct SegmentReport {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t readable_bytes = 0;
  std::uint64_t frame_count = 0;
  std::uint64_t step_count = 0;
  bool is_sealed = false;
  // The file ends inside a frame, this long after the last whole one: also the last of the
  // problems.
  std::uint64_t torn_tail_bytes = 0;
  std::vector<SourceProblem> problems;
};
struct VerifyReport {
  std::vector<SegmentReport> segments;
  std::uint64_t step_count = 0;
  bool is_clean() const;
};
VerifyReport verify_trace(const Storage& storage);

// Where a resumed worker goes on: the dictionary so far, the last step of each mode, the next
// session and segment numbers. Empty-handed (no steps) when the worker has written nothing.
struct ResumePoint {
  Dictionary dictionary;
  std::vector<StepInfo> last_steps;  // one a mode that occurred
  std::int64_t last_global_step = -1;
  std::uint32_t next_session = 0;
};
ResumePoint find_resume_point(const Storage& storage, const std::string& worker);

// The names inside a run.
std::string segment_name(const std::string& worker, std::uint32_t sequence);
std::string end_mark_name(const std::string& worker);
std::string collections_name(const std::string& worker);
inline constexpr const char* kRunFile = "run.json";

}  // namespace tensortap
