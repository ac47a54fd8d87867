// What the readers of all workers of one run share: open files, buffers, and the list of damage
// met. Used by trace/ only. Not thread-safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "trace/file_cache.h"
#include "trace/trace_source.h"

namespace tensortap::trace {

// Each place is reported once, however often it is met.
class ProblemLog {
 public:
  void add(SourceProblem problem) {
    if (problems_.size() >= kLimit || !places_.insert(problem.where + problem.what).second) return;
    problems_.push_back(std::move(problem));
  }
  void add(std::vector<SourceProblem> problems) {
    for (SourceProblem& problem : problems) add(std::move(problem));
  }
  const std::vector<SourceProblem>& all() const { return problems_; }

 private:
  static constexpr std::size_t kLimit = 1000;  // a ruined disk must not fill the memory too
  std::vector<SourceProblem> problems_;
  std::set<std::string> places_;
};

struct ReaderContext {
  static constexpr std::size_t kOpenFileLimit = 128;
  static constexpr std::size_t kIdleBufferBytes = std::size_t{64} << 20;

  explicit ReaderContext(std::shared_ptr<const Storage> storage)
      : files(std::move(storage), kOpenFileLimit), buffers(kIdleBufferBytes) {}

  FileCache files;
  BufferPool buffers;
  ProblemLog problems;
};

}  // namespace tensortap::trace
