#include "actions/runner.h"

#include <algorithm>
#include <exception>
#include <signal.h>
#include <utility>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

namespace tensortap {
namespace {

constexpr std::chrono::seconds kLongestPause(30);

// Signals are for the threads of the training.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

void warn(const ActionOutcome& outcome) noexcept {
  try {
    log(LogLevel::kWarning,
        fmt::format("action {} of rule {} {}: {}", outcome.action, outcome.finding.rule,
                    action_result_name(outcome.result), outcome.detail));
  } catch (const std::exception&) {
    // No memory for the message.
  }
}

}  // namespace

std::string_view action_result_name(ActionResult result) {
  switch (result) {
    case ActionResult::kDone:
      return "done";
    case ActionResult::kFailed:
      return "failed";
    case ActionResult::kDropped:
      return "dropped";
    case ActionResult::kAbandoned:
      return "abandoned";
  }
  return "";
}

std::string to_json(const ActionOutcome& outcome) {
  JsonWriter json;
  json.begin_object()
      .field("action", outcome.action)
      .field("result", action_result_name(outcome.result))
      .field("tries", outcome.tries)
      .field("detail", outcome.detail)
      .field("rule", outcome.finding.rule)
      .field("tensor", outcome.finding.tensor)
      .field("step", outcome.finding.step)
      .field("ended_ns", outcome.ended_ns)
      .end_object();
  return json.text();
}

ActionRunner::~ActionRunner() { close(std::chrono::milliseconds(0)); }

void ActionRunner::set_context(ActionContext context) {
  context_ = std::move(context);
  context_.is_cancelled = &is_cancelled_;
}

void ActionRunner::set_outcome_handler(OutcomeHandler handler) { handler_ = std::move(handler); }

void ActionRunner::set_first_pause(std::chrono::milliseconds pause) { first_pause_ = pause; }

void ActionRunner::add_rule(const std::vector<std::string>& specs) {
  std::vector<Watched> actions;
  for (const std::string& spec : specs) actions.push_back({create_action(spec), std::nullopt});
  rules_.push_back(std::move(actions));
}

std::vector<std::string> ActionRunner::shown_actions(std::size_t rule_index) const {
  std::vector<std::string> shown;
  for (const Watched& watched : rules_[rule_index]) shown.push_back(watched.created.shown);
  return shown;
}

void ActionRunner::on_finding(std::size_t rule_index, const Finding& finding) noexcept {
  for (Watched& watched : rules_[rule_index]) {
    const CreatedAction& created = watched.created;
    if (watched.last_step && finding.step - *watched.last_step < created.cooldown) continue;
    watched.last_step = finding.step;
    try {
      ActionOutcome outcome{rule_index, std::string(created.descriptor->name), finding};
      created.descriptor->is_slow ? enqueue(watched, std::move(outcome))
                                  : run_now(watched, std::move(outcome));
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, error.what());
    }
  }
}

void ActionRunner::run_now(Watched& watched, ActionOutcome outcome) {
  outcome.tries = 1;
  try {
    ActionReply reply = watched.created.action->run(outcome.finding, context_);
    if (reply.is_deferred) return;
    outcome.detail = std::move(reply.detail);
  } catch (const std::exception& error) {
    outcome.result = ActionResult::kFailed;
    outcome.detail = error.what();
  }
  report(std::move(outcome));
}

void ActionRunner::enqueue(Watched& watched, ActionOutcome outcome) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() < kMaxQueued && !is_closing_) {
      jobs_.push_back({watched.created.action.get(), watched.created.retries, std::move(outcome),
                       Clock::now()});
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
      changed_.notify_all();
      return;
    }
  }
  outcome.result = ActionResult::kDropped;
  outcome.detail = fmt::format("{} others wait to be run", kMaxQueued);
  report(std::move(outcome));
}

void ActionRunner::report(ActionOutcome outcome) noexcept {
  outcome.ended_ns = wall_time_ns();
  if (outcome.result != ActionResult::kDone) warn(outcome);
  const std::lock_guard lock(handler_mutex_);
  if (handler_) handler_(outcome);
}

void ActionRunner::work() noexcept {
  block_signals();
  std::unique_lock lock(mutex_);
  while (std::optional<Job> job = take_due(lock)) {
    is_working_ = true;
    lock.unlock();
    const bool is_over = attempt(*job);
    if (is_over) report(std::move(job->outcome));
    lock.lock();
    is_working_ = false;
    // Whatever the bound says: it was let in before.
    if (!is_over) jobs_.push_back(std::move(*job));
    changed_.notify_all();
  }
}

std::optional<ActionRunner::Job> ActionRunner::take_due(std::unique_lock<std::mutex>& lock) {
  while (!is_cancelled_) {
    const auto first = std::min_element(jobs_.begin(), jobs_.end(),
                                        [](const Job& a, const Job& b) { return a.due < b.due; });
    if (first == jobs_.end()) {
      if (is_closing_) return std::nullopt;
      changed_.wait(lock);
    } else if (first->due <= Clock::now()) {
      Job job = std::move(*first);
      jobs_.erase(first);
      return job;
    } else {
      changed_.wait_until(lock, first->due);
    }
  }
  return std::nullopt;
}

bool ActionRunner::attempt(Job& job) {
  ++job.outcome.tries;
  try {
    job.outcome.detail = job.action->run(job.outcome.finding, context_).detail;
    return true;
  } catch (const TransientError& error) {
    job.outcome.detail = error.what();
    if (job.outcome.tries <= job.retries && !is_cancelled_) {
      job.due = Clock::now() + pause_after(job.outcome.tries);
      return false;
    }
  } catch (const std::exception& error) {
    job.outcome.detail = error.what();
  }
  job.outcome.result = is_cancelled_ ? ActionResult::kAbandoned : ActionResult::kFailed;
  return true;
}

// Doubled from one to the next, and up to half as long again, so that many trainings that failed
// together do not come back together.
ActionRunner::Clock::duration ActionRunner::pause_after(std::int64_t tries) {
  const Clock::duration pause = std::min<Clock::duration>(
      first_pause_ * (std::int64_t{1} << std::min<std::int64_t>(tries - 1, 10)), kLongestPause);
  return pause + pause * std::uniform_int_distribution<int>(0, 50)(random_) / 100;
}

void ActionRunner::close(std::chrono::milliseconds patience) noexcept {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, patience, [&] { return jobs_.empty() && !is_working_; });
    is_cancelled_ = true;
    changed_.notify_all();
  }
  thread_.join();
  abandon_rest();
}

void ActionRunner::abandon_rest() noexcept {
  for (Job& job : jobs_) {
    job.outcome.result = ActionResult::kAbandoned;
    if (job.outcome.tries == 0) job.outcome.detail = "the training ended before its turn came";
    report(std::move(job.outcome));
  }
  jobs_.clear();
}

}  // namespace tensortap
