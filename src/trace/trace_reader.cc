#include "trace/trace_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "trace/names.h"
#include "trace/worker_reader.h"

namespace tensortap {
namespace {

using trace::WorkerReader;

class TraceReader final : public TraceSource {
 public:
  explicit TraceReader(std::shared_ptr<Storage> storage)
      : storage_(std::move(storage)), context_(std::make_shared<trace::ReaderContext>(storage_)) {}

  const std::string& uri() const override { return storage_->uri(); }

  bool refresh() override {
    std::map<std::string, std::vector<WorkerReader::ListedSegment>> listed;
    std::set<std::string> ended;
    for (const StorageEntry& entry : storage_->list(trace::kEndFolder)) {
      if (const auto worker = trace::worker_of(entry.name, trace::kEndFolder)) {
        listed[*worker];
        ended.insert(*worker);
      }
    }
    for (const StorageEntry& entry : storage_->list(trace::kCollectionsFolder)) {
      const auto worker = trace::worker_of(entry.name, trace::kCollectionsFolder);
      if (worker) listed[*worker];
    }
    // After the end marks: whoever has ended has written everything by now.
    for (StorageEntry& entry : storage_->list(trace::kTraceFolder)) {
      const auto name = trace::parse_segment_name(entry.name);
      if (name) listed[name->worker].push_back({entry.name, name->sequence, entry.size_bytes});
    }
    bool changed = false;
    for (auto& [name, segments] : listed) {
      std::unique_ptr<WorkerReader>& worker = workers_[name];
      if (worker == nullptr) {
        worker = std::make_unique<WorkerReader>(name, context_);
        changed = true;
      }
      changed |= worker->refresh(segments);
      changed |= worker->set_has_ended(ended.contains(name));
    }
    return changed;
  }

  std::vector<const WorkerSource*> workers() const override {
    std::vector<const WorkerSource*> out;
    for (const auto& [name, worker] : workers_) out.push_back(worker.get());
    return out;
  }
  std::string run_json() const override { return storage_->get(kRunFile).value_or(""); }
  std::vector<std::string> collections_json() const override {
    std::vector<std::string> out;
    for (const auto& [name, worker] : workers_) {
      if (auto content = storage_->get(collections_name(name))) out.push_back(*std::move(content));
    }
    return out;
  }
  std::vector<SourceProblem> problems() const override { return context_->problems.all(); }

  // Throws when the run is none that this version can read.
  void check() const {
    for (const auto& [name, worker] : workers_) {
      if (worker->unsupported().empty()) continue;
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("the trace was written by a newer version of Tensortap: {}/{}", uri(),
                              worker->unsupported()));
    }
    const std::vector<StorageEntry> entries = storage_->list(trace::kTraceFolder);
    const bool has_segment = std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
      return trace::parse_segment_name(entry.name).has_value();
    });
    if (!has_segment && !storage_->exists(kRunFile)) {
      throw Error(ErrorCode::kNotFound, fmt::format("there is no run here: {}", uri()));
    }
  }

 private:
  const std::shared_ptr<Storage> storage_;
  const std::shared_ptr<trace::ReaderContext> context_;
  std::map<std::string, std::unique_ptr<WorkerReader>> workers_;
};

}  // namespace

std::shared_ptr<TraceSource> open_trace(std::shared_ptr<Storage> storage) {
  auto reader = std::make_shared<TraceReader>(std::move(storage));
  reader->refresh();
  reader->check();
  return reader;
}

}  // namespace tensortap
