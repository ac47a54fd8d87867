// Where a worker that starts again goes on.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "trace/names.h"
#include "trace/trace_reader.h"
#include "trace/worker_reader.h"

namespace tensortap {
namespace {

void note_last(const StepInfo& step, std::vector<StepInfo>& last_steps) {
  for (StepInfo& known : last_steps) {
    if (known.mode != step.mode) continue;
    if (step.mode_step >= known.mode_step) known = step;
    return;
  }
  last_steps.push_back(step);
}

}  // namespace

ResumePoint find_resume_point(const Storage& storage, const std::string& worker) {
  // The caller's storage outlives this call, so sharing it needs no ownership.
  const std::shared_ptr<const Storage> borrowed(std::shared_ptr<void>(), &storage);
  trace::WorkerReader reader(worker, std::make_shared<trace::ReaderContext>(borrowed));
  std::vector<trace::WorkerReader::ListedSegment> listed;
  for (const StorageEntry& entry :
       storage.list(fmt::format("{}{}/", trace::kTraceFolder, worker))) {
    const auto name = trace::parse_segment_name(entry.name);
    if (name) listed.push_back({entry.name, name->sequence, entry.size_bytes});
  }
  reader.refresh(listed);
  if (!reader.unsupported().empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a newer version of Tensortap has written here: {}/{}", storage.uri(),
                            reader.unsupported()));
  }
  ResumePoint point;
  point.dictionary = reader.dictionary();
  point.next_session = reader.next_session();
  for (const StepInfo& step : reader.steps()) {
    note_last(step, point.last_steps);
    point.last_global_step = std::max(point.last_global_step, step.step);
  }
  return point;
}

}  // namespace tensortap
