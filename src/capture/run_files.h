// The files of a run that a recording worker writes besides its trace: run.json and
// end/<worker>.json. Opens a run: makes it, joins one that another worker made, goes on in one, or
// refuses. Used by Recorder. Not thread-safe; several workers may open the same run at once.
//
// run.json: {"format": "tensortap", "version": 1, "id": 32 hex digits, "created": ISO 8601 in UTC
// with
//   nanoseconds, "framework": string, "versions": {"tensortap": string}, "host": string, "pid":
//   int, "configuration": any}
// session (kept in the trace): {"session": int, "resumed_after_step": int | null, "started": as
// above,
//   "host", "pid", "framework", "versions", "run": id}
// end/<worker>.json: {"worker", "reason", "ended": as above, "session", "last_step": int, -1 when
// none,
//   "written_steps", "dropped_steps", "written_bytes", "last_error": string, "" when none}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace tensortap {

struct RunRequest {
  std::string worker;
  std::string framework;
  std::string configuration_json;  // a JSON document
  bool resume = false;
};

struct OpenedRun {
  std::string id;
  ResumePoint resume_point;  // empty-handed unless earlier sessions wrote
  std::string session_json;
};

std::string make_run_id();

// Throws Error(kInvalidArgument) for a worker name that cannot be a file name or a configuration
// that is not JSON.
void validate_run_request(const RunRequest& request);

// Throws Error(kAlreadyExists) when the worker has written here and request.resume is false, or
// when run.json is somebody else's; Error(kInvalidArgument) when a file stands where the run should
// be.
OpenedRun open_run(Storage& storage, const RunRequest& request);

struct EndMark {
  std::string worker;
  std::string reason;
  std::uint32_t session = 0;
  std::int64_t last_step = -1;
  TraceWriterCounters counters;
};
void write_end_mark(Storage& storage, const EndMark& mark);

}  // namespace tensortap
