// `tensortap check`: rules over a recorded run, or one that is still being written.
#include <array>
#include <chrono>
#include <cstdint>

#include <fmt/core.h>

#include "actions/runner.h"
#include "actions/spec.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "rules/engine.h"
#include "rules/parameters.h"
#include "session/control.h"

namespace tensortap {
namespace {

constexpr std::size_t kShownFindings = 20;  // of each rule, unless --all

// For mails that are under way; nobody's training waits.
constexpr std::chrono::seconds kActionPatience(30);

struct Options {
  bool is_following = false;
  bool is_json = false;
  bool shows_all = false;
  cli::StepRange steps;
};

// The rules, and what each does when it fires; indexes are the same.
struct Checker {
  RuleEngine engine;
  std::vector<ActionOutcome> outcomes;
  ActionRunner actions;  // ends first: its thread tells of outcomes
};

void add_rules(Checker& checker, std::span<const std::string> specs,
               std::span<const std::string> plugins) {
  try {
    for (const std::string& path : plugins) checker.engine.add_plugin(path);
    for (const std::string& text : specs) {
      RuleSpec spec = parse_rule_spec(text);
      take_actions(spec);
      checker.actions.add_rule(actions_of(spec));
      checker.engine.add(spec);
    }
  } catch (const Error& error) {
    throw cli::UsageError(error.what());
  }
}

void connect_actions(Checker& checker, const Trial& trial, std::shared_ptr<Storage> storage,
                     const Options& options) {
  checker.actions.set_context(context_beside(std::move(storage), trial.has_ended()));
  checker.actions.set_outcome_handler([&](const ActionOutcome& outcome) {
    checker.outcomes.push_back(outcome);
    // Failures are logged by the runner.
    if (options.is_json || outcome.result != ActionResult::kDone) return;
    cli::write_out(fmt::format("{}: action {} {}: {}\n", cli::escape(outcome.finding.rule),
                               outcome.action, action_result_name(outcome.result),
                               cli::escape(outcome.detail)));
  });
}

std::string finding_line(const Finding& finding) {
  return fmt::format("  step {:>6}  {}\n", finding.step, cli::escape(finding.message));
}

// The findings of a rule as a table, the sentence last since it is the longest.
std::string findings_text(std::span<const Finding> findings, std::size_t limit) {
  cli::Table table;
  table.add_column("step", cli::Table::Align::kRight);
  table.add_column("tensor");
  table.add_column("observed", cli::Table::Align::kRight);
  table.add_column("threshold", cli::Table::Align::kRight);
  table.add_column("what");
  for (const Finding& finding : findings.first(std::min(limit, findings.size()))) {
    table.add_row({fmt::format("{}", finding.step),
                   finding.tensor.empty() ? "-" : cli::escape(finding.tensor),
                   cli::short_number(finding.observed), cli::short_number(finding.threshold),
                   cli::escape(finding.message)});
  }
  return table.text(2);
}

std::string headline(const RuleReport& report) {
  std::string line =
      fmt::format("{}: {}", cli::escape(report.name), rule_status_name(report.status));
  if (report.finding_count > 0) {
    line += fmt::format(", {}, first at step {}", cli::plural(report.finding_count, "finding"),
                        report.first_finding ? report.first_finding->step : 0);
  }
  const Coverage& seen = report.coverage;
  return line + fmt::format(" (looked at {} in {})", cli::plural(seen.matched_tensors, "tensor"),
                            cli::plural(seen.checked_steps, "step"));
}

void print_text(const std::vector<RuleReport>& reports,
                const std::vector<std::vector<Finding>>& findings, const Options& options) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    cli::write_out(headline(reports[i]) + "\n");
    if (options.is_following || findings[i].empty()) continue;
    const std::size_t limit = options.shows_all ? findings[i].size() : kShownFindings;
    cli::write_out(findings_text(findings[i], limit));
    if (reports[i].finding_count <= limit) continue;
    cli::write_out(fmt::format("  … and {} (--all shows them)\n",
                               cli::plural(reports[i].finding_count - limit, "more finding")));
  }
}

void append_json(JsonWriter& json, const std::vector<RuleReport>& reports,
                 const std::vector<std::vector<Finding>>& findings, const Options& options) {
  json.begin_array();
  for (std::size_t i = 0; i < reports.size(); ++i) {
    json.begin_object();
    json.key("report").raw(to_json(reports[i]));
    if (!options.is_following) {
      json.key("findings").begin_array();
      for (const Finding& finding : findings[i]) json.raw(to_json(finding));
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
}

// Silence must not look like health: on stderr, whatever stdout is used for.
int warn_and_settle(const std::vector<RuleReport>& reports) {
  bool has_findings = false;
  bool has_errors = false;
  for (const RuleReport& report : reports) {
    const std::string name = cli::escape(report.name);
    if (report.status == RuleStatus::kNoData) {
      cli::write_error(fmt::format("WARNING: rule {} had NO DATA and checked nothing: {}", name,
                                   cli::escape(report.message)));
    } else if (report.status == RuleStatus::kError) {
      cli::write_error(fmt::format("rule {} failed: {}", name, cli::escape(report.message)));
      has_errors = true;
    }
    has_findings = has_findings || report.finding_count > 0;
  }
  if (has_findings) return kExitFindings;
  return has_errors ? kExitError : kExitOk;
}

void print_as_it_comes(const Finding& finding, const Options& options) {
  if (options.is_json) {
    cli::write_out(to_json(finding) + "\n");
  } else {
    cli::write_out(cli::escape(finding.rule) + finding_line(finding));
  }
  cli::flush_out();
}

int check(Checker& checker, Trial& trial, const Options& options) {
  RuleEngine& engine = checker.engine;
  std::vector<std::vector<Finding>> findings(engine.rule_count());
  engine.set_finding_handler([&](std::size_t rule, const Finding& finding) {
    if (options.is_following) {
      print_as_it_comes(finding, options);
    } else if (options.is_json || options.shows_all || findings[rule].size() < kShownFindings) {
      findings[rule].push_back(finding);
    }
    checker.actions.on_finding(rule, finding);
  });
  engine.check_trial(trial, options.steps.first, options.steps.last, options.is_following,
                     [] { return cli::InterruptGuard::is_interrupted() || !cli::is_out_open(); });
  engine.finish(cli::InterruptGuard::is_interrupted());
  checker.actions.close(kActionPatience);
  cli::warn_of_damage(trial);
  const std::vector<RuleReport> reports = engine.reports();
  if (!options.is_json) {
    print_text(reports, findings, options);
    return warn_and_settle(reports);
  }
  JsonWriter json(options.is_following ? 0 : 2);
  json.begin_object().field("run", trial.uri());
  json.key("rules");
  append_json(json, reports, findings, options);
  json.key("actions").begin_array();
  for (const ActionOutcome& outcome : checker.outcomes) json.raw(to_json(outcome));
  json.end_array().end_object();
  cli::write_out(json.text() + "\n");
  return warn_and_settle(reports);
}

int run(const ArgumentValues& arguments) {
  Options options;
  options.is_following = arguments.has("follow");
  options.is_json = arguments.has("json");
  options.shows_all = arguments.has("all");
  options.steps = cli::parse_steps(arguments.get("steps"));
  // Before the run is opened: what the user typed comes first.
  Checker checker;
  add_rules(checker, arguments.get_all("rule"), arguments.get_all("plugin"));
  const std::shared_ptr<Trial> trial = cli::open_run(arguments.get("run"));
  connect_actions(checker, *trial, cli::open_run_storage(arguments.get("run")), options);
  const cli::InterruptGuard guard;
  return check(checker, *trial, options);
}

constexpr std::string_view kDoc =
    R"(The findings are those that the same rules give inside the training. Exit code: 0 nothing found, 3
findings, 2 bad usage, 1 error. A rule that had nothing to look at says so on stderr and has the status
NoData. With --follow, findings are printed as they come; --json then gives one finding a line and the
reports as the last line. A rule's actions run here as they do in a training; stop_training and capture_more ask a
training that is still running, through the run's control/.

Examples:
  tensortap check runs/digits --rule VanishingGradient
  tensortap check runs/digits --rule vanishing_gradient:threshold=1e-6 --steps 100:200
  tensortap check runs/digits --rule LossNotDecreasing --rule ExplodingTensor --follow
  tensortap check runs/digits --follow --rule ExplodingTensor:actions=stop_training)";

}  // namespace

const CommandDescriptor& check_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "rule",
                         .kind = ArgumentKind::kOption,
                         .value_name = "NAME[:key=value,…]",
                         .doc = "a rule with its parameters; repeatable",
                         .is_required = true,
                         .is_repeatable = true},
      ArgumentDescriptor{.name = "plugin",
                         .kind = ArgumentKind::kOption,
                         .value_name = "FILE",
                         .doc = "a shared object with further rules, whose code is run; repeatable",
                         .is_repeatable = true},
      ArgumentDescriptor{.name = "steps",
                         .kind = ArgumentKind::kOption,
                         .value_name = "A:B",
                         .doc = "only global steps from A up to, not including, B"},
      ArgumentDescriptor{.name = "follow",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "wait for further steps until the run ends (Ctrl-C stops)"},
      ArgumentDescriptor{.name = "all",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "every finding, not only the first 20 of each rule"},
      ArgumentDescriptor{.name = "json",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "as JSON, with every finding"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "check",
      .summary = "Run rules over a recorded or growing run.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
