// What the rules of one training leave behind in its run: rules/<name>.json (status, rewritten),
// rules/<name>.jsonl (findings, appended) and rules/<name>.actions.jsonl (what became of actions).
// Used by Session on the training thread, so nothing here throws: a write that fails is logged once
// a rule, counted, and the training goes on. Not thread-safe. It does not decide when a rule fires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rules/engine.h"
#include "storage/storage.h"

namespace tensortap {

class RuleJournal {
 public:
  // A rule that fires for each tensor at each step must not fill the disk. Lines of earlier
  // sessions count.
  static constexpr std::uint64_t kMaxLines = 10'000;

  // `storage` must outlive the journal.
  RuleJournal(Storage& storage, std::string worker);

  // Opens the files of one more rule and writes its status. Indexes count from 0, as the engine's
  // do. An earlier session of the same worker is continued; when another worker of the run holds
  // the name, the files are called <name>.<worker>.
  void add(const RuleReport& report, std::vector<std::string> actions) noexcept;
  void append(std::size_t rule_index, const Finding& finding) noexcept;
  void write_status(std::size_t rule_index, const RuleReport& report) noexcept;
  // A line of rules/<name>.actions.jsonl. From any thread, one call at a time, while no rule is
  // added.
  void append_outcome(std::size_t rule_index, const std::string& line) noexcept;

  // Writes that failed, of all rules.
  std::uint64_t failed_writes() const;

 private:
  struct Entry {
    std::string stem;  // "rules/VanishingGradient"
    std::vector<std::string> actions;
    std::uint64_t earlier_findings = 0;  // of earlier sessions
    std::uint64_t lines = 0;             // in the .jsonl, earlier sessions included
    std::uint64_t unwritten = 0;         // findings beyond kMaxLines
    std::uint64_t failed_writes = 0;
    std::uint64_t outcome_lines = 0;  // of append_outcome alone
  };

  std::string choose_stem(const std::string& rule) const;
  bool is_taken(const std::string& stem) const;
  void take_up(Entry& entry);
  std::string status_json(const Entry& entry, const RuleReport& report) const;
  static void count_failure(Entry& entry, const char* what) noexcept;

  Storage& storage_;
  std::string worker_;
  std::vector<Entry> entries_;
};

}  // namespace tensortap
