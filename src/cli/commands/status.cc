// `tensortap status`: how the rules of a training fare.
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "rules/engine.h"
#include "session/rule_status.h"

namespace tensortap {
namespace {

constexpr std::chrono::milliseconds kPollInterval(250);

bool has_status(const RuleStatusFile& rule, RuleStatus status) {
  return rule.status == rule_status_name(status);
}

std::string coverage_text(const RuleStatusFile& rule) {
  return fmt::format("{}, {}", cli::plural(rule.coverage.matched_tensors, "tensor"),
                     cli::plural(rule.coverage.checked_steps, "step"));
}

std::string age_text(std::int64_t updated_ns) {
  if (updated_ns == 0) return "-";  // a damaged status
  const std::int64_t seconds =
      std::max<std::int64_t>(0, wall_time_ns() - updated_ns) / 1'000'000'000;
  if (seconds < 120) return fmt::format("{} s ago", seconds);
  if (seconds < 7200) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 172'800) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} days ago", seconds / 86'400);
}

// Of several workers that watch with the same rule, which.
std::string name_text(const RuleStatusFile& rule) {
  if (rule.worker == "worker_0") return cli::escape(rule.name);
  return fmt::format("{} ({})", cli::escape(rule.name), cli::escape(rule.worker));
}

std::string table_text(const std::vector<RuleStatusFile>& rules) {
  cli::Table table;
  table.add_column("rule");
  table.add_column("status");
  table.add_column("looked at");
  table.add_column("findings", cli::Table::Align::kRight);
  table.add_column("updated", cli::Table::Align::kRight);
  table.add_column("last action");
  for (const RuleStatusFile& rule : rules) {
    table.add_row({name_text(rule), cli::escape(rule.status), coverage_text(rule),
                   cli::with_separators(rule.finding_count), age_text(rule.updated_ns),
                   rule.last_action.empty() ? "-" : cli::escape(rule.last_action)});
  }
  return table.text();
}

// What --follow prints when it changes: without the age, which always does.
std::string line_text(const RuleStatusFile& rule) {
  std::string line = fmt::format("{}: {}, {} ({})", name_text(rule), cli::escape(rule.status),
                                 cli::plural(rule.finding_count, "finding"), coverage_text(rule));
  if (!rule.last_action.empty()) line += ", " + cli::escape(rule.last_action);
  return line;
}

// Silence must not look like health.
void warn(const std::vector<RuleStatusFile>& rules) {
  for (const RuleStatusFile& rule : rules) {
    if (has_status(rule, RuleStatus::kNoData)) {
      cli::write_error(fmt::format("WARNING: rule {} had NO DATA and checked nothing: {}",
                                   name_text(rule), cli::escape(rule.message)));
    } else if (has_status(rule, RuleStatus::kError)) {
      cli::write_error(
          fmt::format("rule {} failed: {}", name_text(rule), cli::escape(rule.message)));
    }
  }
}

int exit_code(const std::vector<RuleStatusFile>& rules) {
  int code = kExitOk;
  for (const RuleStatusFile& rule : rules) {
    if (rule.finding_count > 0) return kExitFindings;
    if (has_status(rule, RuleStatus::kError)) code = kExitError;
  }
  return code;
}

void print_changes(const std::vector<RuleStatusFile>& rules, bool is_json,
                   std::map<std::string, std::string>& shown) {
  for (const RuleStatusFile& rule : rules) {
    std::string line = line_text(rule);
    std::string& before = shown[rule.name + "\n" + rule.worker];
    if (line == before) continue;
    cli::write_out((is_json ? to_json(rule) : line) + "\n");
    before = std::move(line);
  }
  cli::flush_out();
}

std::vector<RuleStatusFile> follow(Trial& trial, const Storage& storage, bool is_json) {
  const cli::InterruptGuard guard;
  std::map<std::string, std::string> shown;
  while (true) {
    trial.refresh();
    // Asked before the statuses are: what was written before the end is then among them.
    const bool has_ended = trial.has_ended();
    std::vector<RuleStatusFile> rules = read_rule_statuses(storage);
    print_changes(rules, is_json, shown);
    bool is_over = has_ended && !rules.empty();
    for (const RuleStatusFile& rule : rules) {
      is_over = is_over && !has_status(rule, RuleStatus::kInProgress);
    }
    const bool has_no_rules = has_ended && rules.empty();
    if (is_over || has_no_rules || cli::InterruptGuard::is_interrupted() || !cli::is_out_open()) {
      return rules;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void print_once(const Trial& trial, const std::vector<RuleStatusFile>& rules, bool is_json) {
  if (!is_json) {
    cli::write_out(table_text(rules));
    return;
  }
  JsonWriter json(2);
  json.begin_object().field("run", trial.uri()).field("has_ended", trial.has_ended());
  json.key("rules").begin_array();
  for (const RuleStatusFile& rule : rules) json.raw(to_json(rule));
  json.end_array().end_object();
  cli::write_out(json.text() + "\n");
}

int run(const ArgumentValues& arguments) {
  const bool is_json = arguments.has("json");
  const std::shared_ptr<Trial> trial = cli::open_run(arguments.get("run"));
  const std::shared_ptr<Storage> storage = cli::open_run_storage(arguments.get("run"));
  std::vector<RuleStatusFile> rules;
  if (arguments.has("follow")) {
    rules = follow(*trial, *storage, is_json);
  } else {
    rules = read_rule_statuses(*storage);
    if (is_json || !rules.empty()) print_once(*trial, rules, is_json);
  }
  if (rules.empty()) {
    cli::write_error("no rule watched this training; `tensortap check` looks through it now");
  }
  warn(rules);
  return exit_code(rules);
}

constexpr std::string_view kDoc =
    R"(One line a rule: its status as SageMaker has it (InProgress, NoIssuesFound, IssuesFound, Error, Stopped) or
NoData, how much it has seen, its findings, and what became of its last action. While nothing is found, a training
writes its statuses every ten seconds; a line that stays InProgress and grows old is that of a training that was
killed. With --follow, a line is printed each time it changes, until the training ends. Exit code: 0 nothing found, 3
findings, 1 a rule that failed.

Examples:
  tensortap status runs/digits
  tensortap status runs/digits --follow
  tensortap status runs/digits --json)";

}  // namespace

const CommandDescriptor& status_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "follow",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "print what changes until the training ends (Ctrl-C stops)"},
      ArgumentDescriptor{.name = "json",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "as JSON; with --follow one object a line"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "status",
      .summary = "How the rules of a training fare.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
