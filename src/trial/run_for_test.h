// For tests of trial/ and rules/: runs of several workers in memory. Header only, so that no
// library carries it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trial/live_source.h"
#include "trial/record_for_test.h"

namespace tensortap {

// A run of several workers in memory.
class MemoryRun : public TraceSource {
 public:
  explicit MemoryRun(std::size_t budget_bytes = 1u << 30) : budget_bytes_(budget_bytes) {}

  void write(const std::string& worker, const StepInfo& info,
             const std::vector<TestTensor>& tensors) {
    Writer& writer = writer_of(worker);
    writer.live->on_step(writer.maker.make(info, tensors), writer.maker.dictionary());
  }
  void write(const StepInfo& info, const std::vector<TestTensor>& tensors) {
    write("worker_0", info, tensors);
  }
  void appear(const std::string& worker) { writer_of(worker); }
  void end(const std::string& worker = "worker_0") { writer_of(worker).live->mark_ended(); }
  LiveSource& live(const std::string& worker = "worker_0") { return *writer_of(worker).live; }

  const std::string& uri() const override { return uri_; }
  bool refresh() override {
    bool is_new = std::exchange(has_new_worker_, false);
    visible_.clear();
    for (auto& [name, writer] : writers_) {
      is_new = writer.live->refresh() || is_new;
      visible_.push_back(writer.live->workers().front());
    }
    return is_new;
  }
  std::vector<const WorkerSource*> workers() const override { return visible_; }
  std::string run_json() const override { return ""; }
  std::vector<std::string> collections_json() const override {
    std::vector<std::string> documents;
    for (const auto& [name, writer] : writers_) {
      for (const std::string& json : writer.live->collections_json()) documents.push_back(json);
    }
    return documents;
  }
  std::vector<SourceProblem> problems() const override { return {}; }

 private:
  struct Writer {
    RecordMaker maker;
    std::unique_ptr<LiveSource> live;
  };
  Writer& writer_of(const std::string& worker) {
    const auto [entry, is_new] = writers_.try_emplace(worker);
    if (is_new) {
      entry->second.live = std::make_unique<LiveSource>(uri_, worker, budget_bytes_);
      has_new_worker_ = true;
    }
    return entry->second;
  }

  std::size_t budget_bytes_;
  std::string uri_ = "mem://run";
  std::map<std::string, Writer> writers_;
  std::vector<const WorkerSource*> visible_;
  bool has_new_worker_ = false;
};

}  // namespace tensortap
