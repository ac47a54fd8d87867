// The statuses that rules left in a run, read without trust: rules/<name>.json and the last line of
// rules/<name>.actions.jsonl. Used by the program and by Python. Pure functions of the storage's
// content, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/rule.h"
#include "storage/storage.h"

namespace tensortap {

struct RuleStatusFile {
  std::string name;
  std::string worker;
  std::string status;   // "InProgress", …; rule_status_name()
  std::string message;  // the error, or what was not matched
  std::uint64_t finding_count = 0;
  std::int64_t updated_ns = 0;
  Coverage coverage;
  bool has_first_finding = false;  // of the last session
  std::int64_t first_step = 0;     // of that finding
  std::string first_message;
  std::vector<std::string> actions;
  std::string last_action;  // "email done at step 12"; "" when none ran
};

// A file that is no status is one of a rule with the status Error, named after the file.
std::vector<RuleStatusFile> read_rule_statuses(const Storage& storage);

// For `--json` and Python.
std::string to_json(const RuleStatusFile& rule);

}  // namespace tensortap
