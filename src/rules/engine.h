// Runs a set of rules over steps: as a live sink in session/, or over a trial. Collects the
// findings, keeps each rule's status, and fences them: a rule that throws is switched off with its
// error, the others go on. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rules/plugin.h"
#include "rules/rule.h"

namespace tensortap {

class Trial;

enum class RuleStatus { kInProgress, kNoIssuesFound, kIssuesFound, kNoData, kError, kStopped };
std::string_view rule_status_name(RuleStatus status);  // "InProgress", "NoIssuesFound", …

struct RuleReport {
  std::string name;  // unique in the engine: a second one of a kind gets "_2"
  RuleStatus status = RuleStatus::kInProgress;
  std::uint64_t finding_count = 0;
  std::optional<Finding> first_finding;
  Coverage coverage;
  std::string message;  // the error, or what was not matched
  std::map<std::string, std::string, std::less<>> parameters;
};
std::string to_json(const RuleReport& report);

class RuleEngine {
 public:
  // Called once for each finding, in order, during check().
  using FindingHandler = std::function<void(std::size_t rule_index, const Finding&)>;
  // Called once for a rule that threw in check() and is switched off from now on.
  using FailureHandler = std::function<void(std::size_t rule_index, const RuleReport&)>;

  // Lets add() find the rules of a shared object too; throws as RulePlugin does.
  void add_plugin(const std::string& path);
  // Returns the rule's index. A built-in one or a plugin's; throws as find_rule and Parameters do.
  // start_step and end_step (global steps, end exclusive) are taken by every rule; base_trial and
  // rule_to_invoke, which SageMaker sends, are ignored.
  std::size_t add(const RuleSpec& spec);
  std::size_t add(std::string name, std::unique_ptr<Rule> rule);
  void set_finding_handler(FindingHandler handler);
  void set_failure_handler(FailureHandler handler);

  void check(const StepView& step);
  // No step has come; for rules that judge silence.
  void pass_time(std::int64_t now_ns);
  // Over the complete steps of a trial in [first, last), ascending. With `follow`, waits for more
  // until the run ends. should_stop is asked between steps. Gives the number of findings.
  std::uint64_t check_trial(Trial& trial, std::optional<std::int64_t> first_step = {},
                            std::optional<std::int64_t> last_step = {}, bool follow = false,
                            const std::function<bool()>& should_stop = {});
  // No more steps will come: asks the rules for their last findings and settles the statuses.
  // `is_stopped`: a person ended the training, or the checking, before its time; a rule that has
  // found nothing then has the status Stopped, since it did not see everything.
  void finish(bool is_stopped = false);

  std::size_t rule_count() const;
  std::vector<RuleReport> reports() const;

 private:
  struct Entry {
    RuleReport report;
    std::unique_ptr<Rule> rule;
    std::int64_t start_step = 0;
    std::optional<std::int64_t> end_step;
  };

  std::size_t insert(std::string name, Entry entry);
  void check_entry(std::size_t index, const StepView& step);
  void finish_entry(std::size_t index);
  void hand_out_findings(std::size_t index);  // those in scratch_
  void note_collections(const StepView& step);
  std::string no_data_message(const Entry& entry) const;
  void check_step(Trial& trial, std::int64_t step);
  std::uint32_t worker_index(std::size_t position, const std::string& worker);
  std::uint64_t finding_count() const;

  std::vector<RulePlugin> plugins_;  // outlive the rules that they made
  std::vector<Entry> entries_;
  FindingHandler handler_;
  FailureHandler failure_handler_;
  std::vector<Finding> scratch_;
  std::uint64_t step_count_ = 0;
  bool is_finished_ = false;
  // For "nothing matched" messages: what the recorded tensors belong to. Gathered only while some
  // rule has matched nothing.
  bool is_noting_ = true;
  std::vector<std::vector<bool>> noted_tensors_;  // [worker_index][tensor]
  std::set<std::string> noted_collections_;
  // Indices of workers in order of appearance, so that they stay what they are when another one
  // turns up.
  std::vector<std::string> worker_names_;
  std::vector<WorkerStep> worker_steps_;
};

}  // namespace tensortap
