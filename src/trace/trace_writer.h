// Puts the finished steps of one worker into trace/<worker>/<seq>.ttap: a queue bounded in bytes
// and one writer thread, so that the training never waits for a disk (unless the queue is full and
// the policy says wait). A disk that fails or fills drops steps, counts them, says so once, and
// recovers when it can. One producer thread at a time; counters may be read from any thread. See
// docs/trace-format.md for the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/storage.h"
#include "trace/step_record.h"

namespace tensortap {

enum class Backpressure { kBlock, kDrop };

struct TraceWriterOptions {
  std::string worker = "worker_0";
  std::string run_id;                                  // 32 hex digits, as in run.json
  std::uint64_t segment_size_bytes = 64u << 20;        // seal when the frames reach this
  std::int64_t segment_duration_ns = 600'000'000'000;  // or when the segment is this old
  std::size_t queue_size_bytes = 64u << 20;
  Backpressure backpressure = Backpressure::kBlock;
  bool compress_raw = false;        // zstd; gains little on weights
  std::uint32_t session = 0;        // counts resumes; see StepInfo
  std::string session_json = "{}";  // who writes: host, pid, versions; kept in the trace
  Dictionary dictionary;            // on resume: what the earlier sessions defined
};

struct TraceWriterCounters {
  std::uint64_t written_steps = 0;
  std::uint64_t dropped_steps = 0;  // by back-pressure or by failed writes
  std::uint64_t written_bytes = 0;
  std::string last_error;  // "" when none
};

class TraceWriter {
 public:
  TraceWriter(std::shared_ptr<Storage> storage, TraceWriterOptions options);
  ~TraceWriter();  // closes; reports nothing
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Hands a step over. False when it was dropped (its definitions are kept for the next step).
  bool submit(std::shared_ptr<const StepRecord> step) noexcept;
  // Waits until everything submitted is visible to readers, at most this long. False on timeout.
  bool flush(std::int64_t timeout_ns) noexcept;
  // Drains, seals, ends the thread. Idempotent. In a forked child it does nothing.
  void close() noexcept;
  TraceWriterCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
