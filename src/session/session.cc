#include "session/session.h"

#include <exception>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "actions/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "session/rule_journal.h"
#include "trial/live_source.h"

namespace tensortap {
namespace {

void log_failure(const char* where, const char* what) noexcept {
  try {
    log(LogLevel::kWarning, fmt::format("{} failed; the training goes on: {}", where, what));
  } catch (const std::exception&) {
    // No memory for the message.
  }
}

// One rule beside the engine's own record of it.
struct WatchedRule {
  std::vector<std::string> action_names;
  std::vector<std::unique_ptr<Action>> actions;
  std::uint64_t kept_findings = 0;
};

std::vector<std::unique_ptr<Action>> create_actions(const std::vector<std::string>& specs) {
  std::vector<std::unique_ptr<Action>> actions;
  for (const std::string& spec : specs) actions.push_back(create_action(spec));
  return actions;
}

}  // namespace

// The one sink of the recorder: the live trial sees a step first, so that rules find it there.
struct Session::State : StepSink {
  explicit State(SessionOptions session_options) : options(std::move(session_options)) {}

  void add_rule(const RuleSpec& spec);
  void add_rule(std::string name, std::unique_ptr<Rule> rule,
                const std::vector<std::string>& actions);
  void start(CollectionSet collections);
  std::shared_ptr<Trial> live_trial();
  void close() noexcept;

  void on_step(const std::shared_ptr<const StepRecord>& step,
               const Dictionary& dictionary) noexcept override;
  void show_live(const std::shared_ptr<const StepRecord>& step, const Dictionary& dictionary);
  void check(const StepRecord& step, const Dictionary& dictionary);
  void on_finding(std::size_t rule_index, const Finding& finding) noexcept;
  void run_actions(WatchedRule& rule, const Finding& finding) noexcept;
  bool is_in_forked_child() const { return getpid() != pid; }

  SessionOptions options;
  // A child that was forked off (a data loader) holds a copy of all this and must not write with
  // it.
  const pid_t pid = getpid();
  RuleEngine engine;
  std::vector<WatchedRule> rules;
  std::vector<Finding> findings;
  std::vector<std::size_t> newly_fired;  // in the step being checked
  std::optional<Finding> stop_reason;
  ActionContext action_context;
  bool has_seen_step = false;
  bool is_closed = false;

  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<RuleJournal> journal;  // null in a dry run
  std::shared_ptr<LiveSource> live_source;
  std::shared_ptr<Trial> trial;
};

void Session::State::add_rule(const RuleSpec& spec) {
  WatchedRule watched{spec.actions, create_actions(spec.actions)};
  engine.add(spec);
  rules.push_back(std::move(watched));
}

void Session::State::add_rule(std::string name, std::unique_ptr<Rule> rule,
                              const std::vector<std::string>& actions) {
  if (has_seen_step) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rule {} comes too late: add rules before the first step ends", name));
  }
  WatchedRule watched{actions, create_actions(actions)};
  const std::size_t index = engine.add(std::move(name), std::move(rule));
  rules.push_back(std::move(watched));
  if (journal) journal->add(engine.reports()[index], actions);
}

void Session::State::start(CollectionSet collections) {
  recorder = std::make_unique<Recorder>(options.recorder, std::move(collections));
  if (!options.recorder.dry_run) {
    journal = std::make_unique<RuleJournal>(recorder->storage(), options.recorder.worker);
    const std::vector<RuleReport> reports = engine.reports();
    for (std::size_t i = 0; i < reports.size(); ++i)
      journal->add(reports[i], rules[i].action_names);
  }
  action_context.request_stop = [this](const Finding& finding) {
    if (!stop_reason) stop_reason = finding;
  };
  engine.set_finding_handler(
      [this](std::size_t rule_index, const Finding& finding) { on_finding(rule_index, finding); });
  recorder->add_sink(this);
}

std::shared_ptr<Trial> Session::State::live_trial() {
  if (!trial) {
    live_source = std::make_shared<LiveSource>(recorder->storage().uri(), options.recorder.worker,
                                               options.live_budget_bytes);
    live_source->set_collections_json(recorder->collections().to_json());
    trial = std::make_shared<Trial>(live_source);
  }
  return trial;
}

void Session::State::on_step(const std::shared_ptr<const StepRecord>& step,
                             const Dictionary& dictionary) noexcept {
  has_seen_step = true;
  try {
    if (live_source) show_live(step, dictionary);
  } catch (const std::exception& error) {
    log_failure("the live trial", error.what());
  }
  try {
    if (engine.rule_count() > 0) check(*step, dictionary);
  } catch (const std::exception& error) {
    log_failure("checking rules", error.what());
  }
}

void Session::State::show_live(const std::shared_ptr<const StepRecord>& step,
                               const Dictionary& dictionary) {
  // Collections grow with the tensors that turn up; between those they need no new text.
  if (!step->new_tensors.empty()) {
    live_source->set_collections_json(recorder->collections().to_json());
  }
  live_source->on_step(step, dictionary);
  trial->refresh();
}

void Session::State::check(const StepRecord& step, const Dictionary& dictionary) {
  const WorkerStep worker{options.recorder.worker, 0, &step, &dictionary};
  const StepView view{step.info.step, step.info.mode, step.info.mode_step, {&worker, 1}};
  newly_fired.clear();
  engine.check(view);
  if (newly_fired.empty() || !journal) return;
  // Only now: during the check the engine is still counting.
  const std::vector<RuleReport> reports = engine.reports();
  for (const std::size_t index : newly_fired) journal->write_status(index, reports[index]);
}

void Session::State::on_finding(std::size_t rule_index, const Finding& finding) noexcept {
  WatchedRule& rule = rules[rule_index];
  try {
    if (rule.kept_findings == 0) newly_fired.push_back(rule_index);
    if (rule.kept_findings < RuleJournal::kMaxLines) {
      findings.push_back(finding);
      ++rule.kept_findings;
    }
  } catch (const std::exception& error) {
    log_failure("keeping a finding", error.what());
  }
  if (journal) journal->append(rule_index, finding);
  run_actions(rule, finding);
}

void Session::State::run_actions(WatchedRule& rule, const Finding& finding) noexcept {
  for (const std::unique_ptr<Action>& action : rule.actions) {
    try {
      action->run(finding, action_context);
    } catch (const std::exception& error) {
      log_failure("an action", error.what());
    }
  }
}

void Session::State::close() noexcept {
  if (is_closed || is_in_forked_child()) return;
  is_closed = true;
  try {
    if (recorder) recorder->close();  // may end a step, which the rules see
    if (live_source) live_source->mark_ended();
    if (trial) trial->refresh();
    engine.finish();
    if (!journal) return;
    const std::vector<RuleReport> reports = engine.reports();
    for (std::size_t i = 0; i < reports.size(); ++i) journal->write_status(i, reports[i]);
  } catch (const std::exception& error) {
    log_failure("closing the session", error.what());
  }
}

Session::Session(SessionOptions options, CollectionSet collections)
    : state_(std::make_unique<State>(std::move(options))) {
  // Before the run is opened: a misspelt rule must not leave a run behind.
  for (const RuleSpec& spec : state_->options.rules) state_->add_rule(spec);
  state_->start(std::move(collections));
}

Session::~Session() { close(); }

Recorder& Session::recorder() { return *state_->recorder; }

std::shared_ptr<Trial> Session::live_trial() { return state_->live_trial(); }

void Session::add_rule(std::string name, std::unique_ptr<Rule> rule,
                       const std::vector<std::string>& actions) {
  state_->add_rule(std::move(name), std::move(rule), actions);
}

const std::optional<Finding>& Session::stop_reason() const { return state_->stop_reason; }

const std::vector<Finding>& Session::findings() const { return state_->findings; }

std::vector<RuleReport> Session::rule_reports() const { return state_->engine.reports(); }

void Session::close() noexcept { state_->close(); }

}  // namespace tensortap
