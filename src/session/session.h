// The composition root: one training process with its recorder, live trial, rules and actions wired
// together. Nothing else wires them. Bindings and C++ trainings create one; framework hooks drive
// recorder() and call obey() at step borders. Thread safety as Recorder; has_request() from any
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/recorder.h"
#include "monitor/sampler.h"
#include "rules/engine.h"
#include "trial/trial.h"

namespace tensortap {

struct SessionOptions {
  RecorderOptions recorder;
  std::vector<RuleSpec> rules;                // built-in ones, each with its actions
  std::size_t live_budget_bytes = 16u << 20;  // of steps that in-process rules can look back on
  std::int64_t control_interval_ms = 500;     // between looks for requests of other processes
  std::int64_t status_interval_ns = 10'000'000'000;  // between statuses while nothing is found
  std::int64_t action_patience_ms = 5'000;  // that close() waits for mails that are under way
  // The machine's metrics are sampled from the opening on and recorded; unset = not at all, as in a
  // dry run.
  std::optional<SamplerOptions> system_metrics;
};

class Session {
 public:
  Session(SessionOptions options, CollectionSet collections);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Recorder& recorder();
  // The run as in-process rules see it: the newest steps, within the budget, from the first call
  // on. Call it before the first step to see all; a session that nobody asks keeps no steps.
  std::shared_ptr<Trial> live_trial();
  // A rule of the caller's own (Python), with the actions it triggers. Before the first step.
  void add_rule(std::string name, std::unique_ptr<Rule> rule,
                const std::vector<std::string>& actions);

  // A function that the action save_checkpoint can call, on the training thread, in obey(). Before
  // the first step.
  using Function = std::function<void(const Finding&)>;
  void add_function(std::string name, Function function);

  // Somebody outside (`tensortap stop`) waits for the next call of obey(). One atomic read.
  bool has_request() const noexcept;
  // Between steps, on the training thread: calls the functions that findings asked for, does what
  // other processes asked for, and gives the finding for which the training has to stop. Does not
  // throw.
  const std::optional<Finding>& obey() noexcept;
  // The finding whose action asked to stop the training; set during end_step, in the step in which
  // the rule fired, or by obey().
  const std::optional<Finding>& stop_reason() const;
  // In the order they occurred, of each rule the first 10,000; rule_reports() counts all.
  const std::vector<Finding>& findings() const;
  std::vector<RuleReport> rule_reports() const;

  // Closes the recorder, settles the rules, writes rules/<name>.json, waits a while for actions
  // under way. Idempotent, does not throw.
  void close() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
