// For tests of rules: steps of several workers as a run on disk that grows while somebody follows
// it. Header only, so that no library carries it.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trial/record_for_test.h"

namespace tensortap {

// One worker's part of a step.
struct TestRow {
  std::string worker = "worker_0";
  StepInfo info;
  std::vector<TestTensor> tensors;
};

// The rows as a run on disk that grows step by step.
class GrowingRun {
 public:
  explicit GrowingRun(const std::vector<TestRow>& rows) : rows_(rows) {
    static int number = 0;
    path_ = testing::TempDir() + "rule_case_" + std::to_string(::getpid()) + "_" +
            std::to_string(number++);
    std::filesystem::remove_all(path_);
    storage_ = open_storage(path_);
    storage_->put(kRunFile,
                  R"({"format":"tensortap","version":1,"id":"00000000000000000000000000000001"})");
    for (const TestRow& row : rows) {
      Worker& worker = workers_[row.worker];
      if (worker.writer) continue;
      TraceWriterOptions options;
      options.worker = row.worker;
      options.run_id = "00000000000000000000000000000001";
      worker.writer = std::make_unique<TraceWriter>(storage_, options);
    }
  }
  ~GrowingRun() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  // Everybody's first step, so that a trial opened now knows all workers.
  void write_first_step() {
    while (next_ < rows_.size() && rows_[next_].info.step == rows_[0].info.step) {
      write_next();
    }
  }
  void write_rest() {
    // Now and then the follower is to find nothing new, but a long case is not to take long.
    const std::size_t pause_every = std::max<std::size_t>(1, rows_.size() / 10);
    while (next_ < rows_.size()) {
      if (next_ % pause_every == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      write_next();
    }
    for (auto& [name, worker] : workers_) {
      worker.writer->close();
      storage_->put(end_mark_name(name), "{}");
    }
  }

 private:
  struct Worker {
    RecordMaker maker;
    std::unique_ptr<TraceWriter> writer;
  };
  void write_next() {
    const TestRow& row = rows_[next_++];
    Worker& worker = workers_[row.worker];
    EXPECT_TRUE(worker.writer->submit(worker.maker.make(row.info, row.tensors)));
    EXPECT_TRUE(worker.writer->flush(10'000'000'000));
  }

  const std::vector<TestRow>& rows_;
  std::string path_;
  std::shared_ptr<Storage> storage_;
  std::map<std::string, Worker> workers_;
  std::size_t next_ = 0;
};

}  // namespace tensortap
