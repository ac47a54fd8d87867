// Runs the actions of rules: those that are quick at once, on the caller's thread; slow ones on a
// thread of its own, from a bounded queue, with further tries after growing pauses. So the training
// never waits for a network. Used by session/ and by `tensortap check`. add_rule, on_finding and
// close from one thread; the outcome handler is called from that thread and from the runner's, one
// call at a time, and must not throw.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "actions/action.h"
#include "actions/registry.h"

namespace tensortap {

enum class ActionResult : std::uint8_t {
  kDone,
  kFailed,     // after its last try
  kDropped,    // the queue was full
  kAbandoned,  // the training ended first
};
std::string_view action_result_name(ActionResult result);  // "done", "failed", …

struct ActionOutcome {
  std::size_t rule_index = 0;
  std::string action;  // "email"
  Finding finding;     // that it was run for
  ActionResult result = ActionResult::kDone;
  std::int64_t tries = 0;
  std::string detail = {};  // what it did, or why not: one line without secrets
  std::int64_t ended_ns = 0;
};
// One JSON object on one line: rules/<name>.actions.jsonl, documented in docs/findings.md.
std::string to_json(const ActionOutcome& outcome);

class ActionRunner {
 public:
  using OutcomeHandler = std::function<void(const ActionOutcome&)>;
  static constexpr std::size_t kMaxQueued = 100;

  ActionRunner() { context_.is_cancelled = &is_cancelled_; }
  ~ActionRunner();
  ActionRunner(const ActionRunner&) = delete;
  ActionRunner& operator=(const ActionRunner&) = delete;

  // Before the first finding.
  void set_context(ActionContext context);
  void set_outcome_handler(OutcomeHandler handler);
  void set_first_pause(std::chrono::milliseconds pause);  // before the second try; then doubled

  // The actions of one more rule; indexes count from 0, as the engine's do. Throws as
  // create_action, and then adds nothing.
  void add_rule(const std::vector<std::string>& specs);
  // As they may be stored, without secrets.
  std::vector<std::string> shown_actions(std::size_t rule_index) const;

  // Runs what the rule has, unless it ran within its cool-down.
  void on_finding(std::size_t rule_index, const Finding& finding) noexcept;
  // The outcome of an action that was deferred.
  void report(ActionOutcome outcome) noexcept;

  // Waits for what is queued, at most that long; what is left is reported as abandoned. Idempotent.
  void close(std::chrono::milliseconds patience) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    CreatedAction created;
    std::optional<std::int64_t> last_step;
  };
  struct Job {
    Action* action = nullptr;
    std::int64_t retries = 0;
    ActionOutcome outcome;
    Clock::time_point due;
  };

  void run_now(Watched& watched, ActionOutcome outcome);
  void enqueue(Watched& watched, ActionOutcome outcome);
  void work() noexcept;
  std::optional<Job> take_due(std::unique_lock<std::mutex>& lock);
  bool attempt(Job& job);  // false: to be tried again
  Clock::duration pause_after(std::int64_t tries);
  void abandon_rest() noexcept;

  ActionContext context_;
  OutcomeHandler handler_;
  std::mutex handler_mutex_;
  Clock::duration first_pause_ = std::chrono::milliseconds(500);
  std::vector<std::vector<Watched>> rules_;

  std::mutex mutex_;  // from here to is_closing_
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  bool is_working_ = false;
  bool is_closing_ = false;
  std::atomic<bool> is_cancelled_ = false;
  std::minstd_rand random_;
  std::thread thread_;
};

}  // namespace tensortap
