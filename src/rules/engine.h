// Runs a set of rules over steps: as a live sink in session/, or over a trial. Collects the findings, keeps each rule's
// status, and fences them: a rule that throws is switched off with its error, the others go on. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rules/rule.h"

namespace tensortap {

class Trial;

enum class RuleStatus { kInProgress, kNoIssuesFound, kIssuesFound, kNoData, kError };
std::string_view rule_status_name(RuleStatus status);  // "InProgress", "NoIssuesFound", …

struct RuleReport {
  std::string name;                       // unique in the engine: a second one of a kind gets "_2"
  RuleStatus status = RuleStatus::kInProgress;
  std::uint64_t finding_count = 0;
  std::optional<Finding> first_finding;
  Coverage coverage;
  std::string message;                    // the error, or what was not matched
  std::map<std::string, std::string, std::less<>> parameters;
};
std::string to_json(const RuleReport& report);

class RuleEngine {
 public:
  // Called once for each finding, in order, during check().
  using FindingHandler = std::function<void(std::size_t rule_index, const Finding&)>;

  // Returns the rule's index.
  std::size_t add(const RuleSpec& spec);  // a built-in one; throws as find_rule and Parameters do
  std::size_t add(std::string name, std::unique_ptr<Rule> rule);
  void set_finding_handler(FindingHandler handler);

  void check(const StepView& step);
  // Over the complete steps of a trial in [first, last), ascending. With `follow`, waits for more until the run ends.
  // should_stop is asked between steps. Gives the number of findings.
  std::uint64_t check_trial(Trial& trial, std::optional<std::int64_t> first_step = {},
                            std::optional<std::int64_t> last_step = {}, bool follow = false,
                            const std::function<bool()>& should_stop = {});
  // No more steps will come: settles the statuses.
  void finish();

  std::size_t rule_count() const;
  std::vector<RuleReport> reports() const;

 private:
  struct Entry {
    RuleReport report;
    std::unique_ptr<Rule> rule;
  };
  std::vector<Entry> entries_;
  FindingHandler handler_;
  std::vector<Finding> scratch_;
};

}  // namespace tensortap
