// What stands beside the trace in a run: run.json and the end marks, read without trust. Used by
// cli/commands. Pure functions of the storage's content, thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rules/finding.h"
#include "storage/storage.h"
#include "trace/trace_source.h"

namespace tensortap::cli {

// What `ls` shows of run.json; empty where it says nothing.
struct RunDescription {
  std::string run_id;
  std::string framework;
  std::string created;
  bool is_damaged = false;
};
RunDescription describe_run(const std::string& run_json);

// rules/*.jsonl: what the rules of the training found, in the order of the files. Lines that are
// something else are left out.
std::vector<Finding> read_findings(const Storage& storage);

// Where these files contradict the trace: a run.json that cannot be read, steps that a worker
// counted when it ended and that are no longer there.
std::vector<SourceProblem> check_run_files(const std::shared_ptr<Storage>& storage);

}  // namespace tensortap::cli
