// The steps of this very process as a TraceSource: what in-process rules look at. Keeps the newest
// steps within a memory budget (the newest one always) and drops the oldest, raw values with them;
// the statistics of one-element tensors (losses, scalars) and texts are kept for the whole run,
// compactly. A step that was dropped keeps its ordinal and StepInfo. on_step comes from the
// training thread; reading is done on that thread too (by rules). Not thread-safe otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "capture/step_sink.h"
#include "trace/trace_source.h"

namespace tensortap {

class LiveSource : public TraceSource, public StepSink {
 public:
  LiveSource(std::string uri, std::string worker, std::size_t budget_bytes);
  ~LiveSource() override;

  void on_step(const std::shared_ptr<const StepRecord>& step,
               const Dictionary& dictionary) noexcept override;
  void mark_ended();
  void set_collections_json(std::string json);

  const std::string& uri() const override;
  bool refresh() override;
  std::vector<const WorkerSource*> workers() const override;
  std::string run_json() const override;
  std::vector<std::string> collections_json() const override;
  std::vector<SourceProblem> problems() const override;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
  std::string uri_;
  std::string collections_json_;
  bool changed_ = false;
};

}  // namespace tensortap
