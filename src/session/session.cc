#include "session/session.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <numeric>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "actions/runner.h"
#include "actions/spec.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "session/control.h"
#include "session/rule_journal.h"
#include "session/system_metrics.h"
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

// A call of a function of the script's, which waits for the step border.
struct DueCall {
  std::string function;
  Finding finding;
};

}  // namespace

// The one sink of the recorder: the live trial sees a step first, so that rules find it there.
struct Session::State : StepSink {
  explicit State(SessionOptions session_options) : options(std::move(session_options)) {}

  void add_rule(const RuleSpec& spec);
  void add_rule(std::string name, std::unique_ptr<Rule> rule,
                const std::vector<std::string>& actions);
  void start(CollectionSet collections);
  void start_system_metrics();
  std::shared_ptr<Trial> live_trial();
  void close() noexcept;

  void on_step(const std::shared_ptr<const StepRecord>& step,
               const Dictionary& dictionary) noexcept override;
  void show_live(const std::shared_ptr<const StepRecord>& step, const Dictionary& dictionary);
  void check(const StepRecord& step, const Dictionary& dictionary);
  void on_finding(std::size_t rule_index, const Finding& finding) noexcept;
  void on_failure(std::size_t rule_index, const RuleReport& report) noexcept;
  void write_statuses(std::span<const std::size_t> rule_indexes);
  void fill_action_context();
  void start_watching_control();
  void call_due_functions();
  void take_requests();
  void close_rules();
  bool is_in_forked_child() const { return getpid() != pid; }

  SessionOptions options;
  // A child that was forked off (a data loader) holds a copy of all this and must not write with
  // it.
  const pid_t pid = getpid();
  RuleEngine engine;
  ActionRunner actions;
  std::vector<std::uint64_t> kept_findings;  // by rule
  std::vector<Finding> findings;
  std::vector<std::size_t> newly_fired;  // in the step being checked
  std::map<std::string, Function> functions;
  std::vector<DueCall> due_calls;
  std::optional<Finding> stop_reason;
  bool was_stopped_from_outside = false;
  std::int64_t statuses_written_ns = monotonic_time_ns();
  bool has_seen_step = false;
  bool is_closed = false;

  std::unique_ptr<SystemMetrics> system_metrics;  // null when off; the recorder's to the end
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<RuleJournal> journal;     // null in a dry run
  std::unique_ptr<ControlWatcher> control;  // null in a dry run
  std::shared_ptr<LiveSource> live_source;
  std::shared_ptr<Trial> trial;
};

void Session::State::add_rule(const RuleSpec& spec) {
  actions.add_rule(actions_of(spec));
  engine.add(spec);
  kept_findings.push_back(0);
}

void Session::State::add_rule(std::string name, std::unique_ptr<Rule> rule,
                              const std::vector<std::string>& action_specs) {
  if (has_seen_step) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rule {} comes too late: add rules before the first step ends", name));
  }
  actions.add_rule(action_specs);
  const std::size_t index = engine.add(std::move(name), std::move(rule));
  kept_findings.push_back(0);
  if (journal) journal->add(engine.reports()[index], actions.shown_actions(index));
}

void Session::State::start(CollectionSet collections) {
  if (options.recorder.dry_run) options.system_metrics.reset();
  if (options.system_metrics) {
    // Now: a collection that turns up later makes hooks plan anew.
    collections.get_or_create(SystemMetrics::kCollection).include("^system/");
  }
  recorder = std::make_unique<Recorder>(options.recorder, std::move(collections));
  if (!options.recorder.dry_run) {
    journal = std::make_unique<RuleJournal>(recorder->storage(), options.recorder.worker);
    const std::vector<RuleReport> reports = engine.reports();
    for (std::size_t i = 0; i < reports.size(); ++i)
      journal->add(reports[i], actions.shown_actions(i));
    start_watching_control();
  }
  fill_action_context();
  engine.set_finding_handler(
      [this](std::size_t rule_index, const Finding& finding) { on_finding(rule_index, finding); });
  engine.set_failure_handler(
      [this](std::size_t index, const RuleReport& report) { on_failure(index, report); });
  recorder->add_sink(this);
  if (options.system_metrics) start_system_metrics();
}

void Session::State::start_system_metrics() {
  try {
    system_metrics = std::make_unique<SystemMetrics>(*options.system_metrics, *recorder);
    recorder->set_source(system_metrics.get());
  } catch (const std::exception& error) {
    log_failure("sampling system metrics", error.what());
  }
}

void Session::State::start_watching_control() {
  if (options.control_interval_ms <= 0) return;
  try {
    control = std::make_unique<ControlWatcher>(recorder->storage(), options.recorder.worker,
                                               options.control_interval_ms);
  } catch (const std::exception& error) {
    log_failure("looking for requests of other processes", error.what());
  }
}

void Session::State::fill_action_context() {
  ActionContext context;
  context.run = recorder->storage().uri();
  context.request_stop = [this](const Finding& finding) {
    if (!stop_reason) stop_reason = finding;
  };
  context.raise_detail = [this](const Finding&, const DetailWish& wish) {
    recorder->raise_detail(wish.collections, wish.step_count, wish.with_raw);
  };
  context.call_function = [this](const std::string& function, const Finding& finding) {
    if (!functions.contains(function)) {
      throw Error(ErrorCode::kNotFound, fmt::format("the script gave no function '{}'", function));
    }
    due_calls.push_back({function, finding});
  };
  actions.set_context(std::move(context));
  actions.set_outcome_handler([this](const ActionOutcome& outcome) {
    if (journal) journal->append_outcome(outcome.rule_index, to_json(outcome));
  });
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
  if (!journal) return;
  const std::int64_t now_ns = monotonic_time_ns();
  if (now_ns - statuses_written_ns >= options.status_interval_ns) {
    statuses_written_ns = now_ns;
    newly_fired.resize(engine.rule_count());
    std::iota(newly_fired.begin(), newly_fired.end(), 0);
  }
  // Only now: during the check the engine is still counting.
  if (!newly_fired.empty()) write_statuses(newly_fired);
}

void Session::State::write_statuses(std::span<const std::size_t> rule_indexes) {
  const std::vector<RuleReport> reports = engine.reports();
  for (const std::size_t index : rule_indexes) journal->write_status(index, reports[index]);
}

void Session::State::on_finding(std::size_t rule_index, const Finding& finding) noexcept {
  std::uint64_t& kept = kept_findings[rule_index];
  try {
    if (kept == 0) newly_fired.push_back(rule_index);
    if (kept < RuleJournal::kMaxLines) {
      findings.push_back(finding);
      ++kept;
    }
  } catch (const std::exception& error) {
    log_failure("keeping a finding", error.what());
  }
  if (journal) journal->append(rule_index, finding);
  actions.on_finding(rule_index, finding);
}

// Told at once, and written before the next ten seconds are over: a rule that no longer looks must
// not pass for one that finds nothing.
void Session::State::on_failure(std::size_t rule_index, const RuleReport& report) noexcept {
  try {
    std::string message = report.message;
    std::replace(message.begin(), message.end(), '\n', ' ');
    log(LogLevel::kWarning,
        fmt::format("rule {} failed and is switched off, the training goes on: {}", report.name,
                    message));
    newly_fired.push_back(rule_index);
  } catch (const std::exception&) {
    // No memory for the message.
  }
}

void Session::State::call_due_functions() {
  const std::vector<DueCall> calls = std::exchange(due_calls, {});
  if (calls.empty()) return;
  const std::vector<RuleReport> reports = engine.reports();
  for (const DueCall& call : calls) {
    const auto rule = std::find_if(reports.begin(), reports.end(), [&](const RuleReport& report) {
      return report.name == call.finding.rule;
    });
    ActionOutcome outcome{static_cast<std::size_t>(rule - reports.begin()), "save_checkpoint",
                          call.finding};
    outcome.tries = 1;
    try {
      functions.at(call.function)(call.finding);
      outcome.detail = fmt::format("called {}", call.function);
    } catch (const std::exception& error) {
      outcome.result = ActionResult::kFailed;
      outcome.detail = error.what();
    }
    actions.report(std::move(outcome));
  }
}

void Session::State::take_requests() {
  for (ControlRequest& request : control->take()) {
    if (request.kind == ControlRequest::Kind::kCaptureMore) {
      recorder->raise_detail(request.wish.collections, request.wish.step_count,
                             request.wish.with_raw);
      continue;
    }
    if (stop_reason) continue;
    // A person's own request knows no step.
    if (request.finding.rule.empty()) {
      request.finding.step = recorder->step();
      was_stopped_from_outside = true;
    }
    stop_reason = std::move(request.finding);
  }
}

void Session::State::close() noexcept {
  if (is_closed || is_in_forked_child()) return;
  is_closed = true;
  if (system_metrics) system_metrics->stop();
  try {
    if (recorder) recorder->close();  // may end a step, which the rules see
    if (live_source) live_source->mark_ended();
    if (trial) trial->refresh();
    close_rules();
  } catch (const std::exception& error) {
    log_failure("closing a session", error.what());
  }
  control.reset();
  actions.close(std::chrono::milliseconds(options.action_patience_ms));
}

void Session::State::close_rules() {
  engine.finish(was_stopped_from_outside);
  call_due_functions();
  if (!journal) return;
  std::vector<std::size_t> all(engine.rule_count());
  std::iota(all.begin(), all.end(), 0);
  write_statuses(all);
}

Session::Session(SessionOptions options, CollectionSet collections)
    : state_(std::make_unique<State>(std::move(options))) {
  // Before the run is opened: a misspelt rule must not leave a run behind.
  for (const RuleSpec& spec : state_->options.rules) state_->add_rule(spec);
  if (state_->options.system_metrics) validate(*state_->options.system_metrics);
  state_->start(std::move(collections));
}

Session::~Session() {
  // The child of a fork lacks the threads that the members would wait for.
  if (state_->is_in_forked_child()) {
    (void)state_.release();
    return;
  }
  close();
}

Recorder& Session::recorder() { return *state_->recorder; }

std::shared_ptr<Trial> Session::live_trial() { return state_->live_trial(); }

void Session::add_rule(std::string name, std::unique_ptr<Rule> rule,
                       const std::vector<std::string>& actions) {
  state_->add_rule(std::move(name), std::move(rule), actions);
}

void Session::add_function(std::string name, Function function) {
  state_->functions.insert_or_assign(std::move(name), std::move(function));
}

bool Session::has_request() const noexcept {
  return state_->control != nullptr && state_->control->has_request();
}

const std::optional<Finding>& Session::obey() noexcept {
  try {
    state_->call_due_functions();
    if (has_request()) state_->take_requests();
  } catch (const std::exception& error) {
    log_failure("obeying a request", error.what());
  }
  return state_->stop_reason;
}

const std::optional<Finding>& Session::stop_reason() const { return state_->stop_reason; }

const std::vector<Finding>& Session::findings() const { return state_->findings; }

std::vector<RuleReport> Session::rule_reports() const { return state_->engine.reports(); }

void Session::close() noexcept { state_->close(); }

}  // namespace tensortap
