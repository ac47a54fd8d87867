// `tensortap ls`: what is in a run.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include <fmt/core.h>

#include "base/json.h"
#include "base/regex.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "cli/run_files.h"
#include "session/rule_status.h"
#include "trace/trace_reader.h"

namespace tensortap {
namespace {

constexpr std::size_t kShownTensors = 40;  // unless --all

struct TensorSummary {
  std::string name;
  std::vector<std::string> collections;
  std::uint64_t step_count = 0;
  std::optional<std::int64_t> first_step;
  std::optional<std::int64_t> last_step;
  std::string layout;  // at the last step; "text" for texts
};

// One start of the run: the first, or a resume.
struct SessionSummary {
  std::string worker;
  std::uint32_t session = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::int64_t started_ns = 0;  // of its first step, since the Unix epoch
};

struct RunSummary {
  std::string uri;
  cli::RunDescription description;
  std::vector<SessionSummary> sessions;               // by worker, in order
  std::vector<std::pair<std::string, bool>> workers;  // name, has ended
  std::uint64_t step_count = 0;
  std::vector<std::pair<Mode, std::uint64_t>> steps;            // of each mode
  std::map<std::string, std::vector<std::string>> collections;  // the tensors of each
  std::vector<RuleStatusFile> rules;
  std::vector<SourceProblem> problems;
  std::uint64_t tensor_count = 0;
  std::vector<TensorSummary> tensors;  // those that were asked for
};

std::vector<SessionSummary> list_sessions(Trial& trial) {
  std::vector<SessionSummary> sessions;
  for (const WorkerSource* worker : trial.source().workers()) {
    bool is_first = true;
    for (const StepInfo& step : worker->steps()) {
      if (is_first || sessions.back().session != step.session) {
        sessions.push_back({worker->name(), step.session, step.step, step.step, step.wall_time_ns});
        is_first = false;
      }
      sessions.back().last_step = step.step;
    }
  }
  return sessions;
}

std::uint64_t count_sessions(const RunSummary& run) {
  std::uint32_t last = 0;
  for (const SessionSummary& session : run.sessions) last = std::max(last, session.session);
  return run.sessions.empty() ? 0 : last + std::uint64_t{1};
}

TensorSummary summarize_tensor(const Trial& trial, const std::string& name) {
  TensorSummary tensor;
  tensor.name = name;
  const std::vector<std::int64_t> steps = trial.tensor_steps(name);
  tensor.step_count = steps.size();
  if (steps.empty()) return tensor;
  tensor.first_step = steps.front();
  tensor.last_step = steps.back();
  if (const std::optional<Layout> layout = trial.layout(name, steps.back())) {
    tensor.layout = cli::layout_text(*layout);
  } else if (trial.text(name, steps.back())) {
    tensor.layout = "text";
  }
  return tensor;
}

void add_collections(const Trial& trial, RunSummary& summary) {
  for (const std::string& name : trial.collections().names()) {
    TensorFilter filter;
    filter.collection = name;
    summary.collections[name] = trial.tensor_names(filter);
  }
}

void add_tensors(const Trial& trial, const std::string& pattern, std::size_t limit,
                 RunSummary& summary) {
  TensorFilter filter;
  if (!pattern.empty()) filter.regexes.push_back(pattern);
  const std::vector<std::string> names = trial.tensor_names(filter);
  summary.tensor_count = names.size();
  for (const std::string& name : names) {
    if (summary.tensors.size() == limit) break;
    summary.tensors.push_back(summarize_tensor(trial, name));
    for (const auto& [collection, members] : summary.collections) {
      // "all" holds everything and says nothing.
      if (collection != "all" && std::binary_search(members.begin(), members.end(), name)) {
        summary.tensors.back().collections.push_back(collection);
      }
    }
  }
}

RunSummary summarize(Trial& trial, const Storage& storage) {
  RunSummary summary;
  summary.uri = trial.uri();
  summary.description = cli::describe_run(trial.source().run_json());
  summary.sessions = list_sessions(trial);
  for (const WorkerSource* worker : trial.source().workers()) {
    summary.workers.emplace_back(worker->name(), worker->has_ended());
  }
  summary.step_count = trial.steps().size();
  for (const Mode mode : trial.modes()) {
    // As a mode, GLOBAL numbers the steps of all others.
    if (mode != Mode::kGlobal) summary.steps.emplace_back(mode, trial.steps(mode).size());
  }
  add_collections(trial, summary);
  summary.rules = read_rule_statuses(storage);
  summary.problems = trial.source().problems();
  if (summary.description.is_damaged) {
    summary.problems.push_back(
        {kRunFile, "the description of the run is missing or cannot be read"});
  }
  return summary;
}

std::string_view status_text(bool has_ended) {
  return has_ended ? "ended" : "no end mark: still running or killed";
}

bool has_ended(const RunSummary& run) {
  return !run.workers.empty() && std::all_of(run.workers.begin(), run.workers.end(),
                                             [](const auto& worker) { return worker.second; });
}

void print_line(std::string_view label, std::string_view text) {
  cli::write_out(fmt::format("{:<12} {}\n", label, text.empty() ? "-" : cli::escape(text)));
}

void print_workers(const RunSummary& run) {
  std::vector<std::string> names;
  for (const auto& [name, ended] : run.workers) {
    // One state for all is said once, in the line below.
    const bool differs = run.workers.size() > 1 && ended != has_ended(run);
    names.push_back(differs ? fmt::format("{} ({})", name, status_text(ended)) : name);
  }
  print_line("workers", join(names, ", "));
  print_line("status", status_text(has_ended(run)));
}

void print_steps(const RunSummary& run) {
  std::vector<std::string> parts;
  for (const auto& [mode, count] : run.steps) {
    parts.push_back(fmt::format("{} {}", mode_name(mode), cli::with_separators(count)));
  }
  const std::string total = cli::with_separators(run.step_count);
  print_line("steps", parts.empty() ? total : fmt::format("{} ({})", total, join(parts, ", ")));
}

// The lineage of a run that was resumed.
void print_sessions(const RunSummary& run) {
  for (const SessionSummary& session : run.sessions) {
    print_line("", fmt::format("{} {}: steps {} to {}", session.worker,
                               session.session == 0 ? "start" : "resume", session.first_step,
                               session.last_step));
  }
}

void print_header(const RunSummary& run) {
  print_line("run", run.uri);
  print_line("id", run.description.run_id);
  print_line("framework", run.description.framework);
  print_line("created", run.description.created);
  print_line("sessions", cli::with_separators(count_sessions(run)));
  if (count_sessions(run) > 1) print_sessions(run);
  print_workers(run);
  print_steps(run);
  std::vector<std::string> parts;
  for (const auto& [name, members] : run.collections) {
    if (!members.empty()) parts.push_back(fmt::format("{} {}", name, members.size()));
  }
  print_line("collections", parts.empty() ? "none" : join(parts, ", "));
  for (const RuleStatusFile& rule : run.rules) {
    print_line("rule", fmt::format("{}: {}, {}", rule.name, rule.status,
                                   cli::plural(rule.finding_count, "finding")));
  }
  for (const SourceProblem& problem : run.problems) {
    print_line("problem", fmt::format("{} ({})", problem.what, problem.where));
  }
}

std::string steps_text(const TensorSummary& tensor) {
  if (tensor.step_count == 0) return "0";
  return fmt::format("{} ({} to {})", tensor.step_count, *tensor.first_step, *tensor.last_step);
}

void print_text(const RunSummary& run) {
  print_header(run);
  print_line("tensors", cli::with_separators(run.tensor_count));
  if (run.tensors.empty()) return;
  cli::Table table;
  table.add_column("tensor");
  table.add_column("steps");
  table.add_column("layout");
  table.add_column("collections");
  for (const TensorSummary& tensor : run.tensors) {
    table.add_row({cli::escape(tensor.name), steps_text(tensor),
                   tensor.layout.empty() ? "-" : tensor.layout,
                   cli::escape(join(tensor.collections, ", "))});
  }
  cli::write_out("\n" + table.text());
  if (run.tensors.size() == run.tensor_count) return;
  cli::write_out(fmt::format("… and {} (--all shows them, --tensors REGEX picks some)\n",
                             cli::plural(run.tensor_count - run.tensors.size(), "more tensor")));
}

void append_run_json(JsonWriter& json, const RunSummary& run) {
  json.field("run", run.uri)
      .field("run_id", run.description.run_id)
      .field("framework", run.description.framework);
  json.field("created", run.description.created).field("session_count", count_sessions(run));
  json.key("sessions").begin_array();
  for (const SessionSummary& session : run.sessions) {
    json.begin_object().field("worker", session.worker).field("session", session.session);
    json.field("first_step", session.first_step).field("last_step", session.last_step);
    json.field("started_ns", session.started_ns).end_object();
  }
  json.end_array();
  json.field("has_ended", has_ended(run)).field("status", status_text(has_ended(run)));
  json.key("workers").begin_array();
  for (const auto& [name, ended] : run.workers) {
    json.begin_object().field("name", name).field("has_ended", ended).end_object();
  }
  json.end_array();
  json.field("step_count", run.step_count);
  json.key("steps").begin_object();
  for (const auto& [mode, count] : run.steps) json.field(mode_name(mode), count);
  json.end_object();
  json.key("collections").begin_object();
  for (const auto& [name, members] : run.collections) {
    json.field(name, std::uint64_t{members.size()});
  }
  json.end_object();
  json.key("rules").begin_array();
  for (const RuleStatusFile& rule : run.rules) {
    json.begin_object().field("name", rule.name).field("status", rule.status);
    json.field("finding_count", rule.finding_count).end_object();
  }
  json.end_array();
  json.key("problems").begin_array();
  for (const SourceProblem& problem : run.problems) {
    json.begin_object().field("where", problem.where).field("what", problem.what).end_object();
  }
  json.end_array();
}

void append_tensor_json(JsonWriter& json, const TensorSummary& tensor) {
  json.begin_object().field("name", tensor.name).field("step_count", tensor.step_count);
  if (tensor.first_step) json.field("first_step", *tensor.first_step);
  if (tensor.last_step) json.field("last_step", *tensor.last_step);
  json.field("layout", tensor.layout);
  json.key("collections").begin_array();
  for (const std::string& collection : tensor.collections) json.value(collection);
  json.end_array().end_object();
}

void print_json(const RunSummary& run) {
  JsonWriter json(2);
  json.begin_object();
  append_run_json(json, run);
  json.field("tensor_count", run.tensor_count);
  json.key("tensors").begin_array();
  for (const TensorSummary& tensor : run.tensors) append_tensor_json(json, tensor);
  json.end_array().end_object();
  cli::write_out(json.text() + "\n");
}

int run(const ArgumentValues& arguments) {
  const std::string& pattern = arguments.get("tensors");
  if (arguments.has("tensors")) cli::require_regex(pattern);
  const std::shared_ptr<Trial> trial = cli::open_run(arguments.get("run"));
  RunSummary summary = summarize(*trial, *cli::open_run_storage(arguments.get("run")));
  const bool is_json = arguments.has("json");
  const bool shows_all = is_json || arguments.has("all");
  add_tensors(*trial, pattern, shows_all ? SIZE_MAX : kShownTensors, summary);
  is_json ? print_json(summary) : print_text(summary);
  return kExitOk;
}

constexpr std::string_view kDoc =
    R"(Reads indexes only, so it is quick on long runs too, and works while the training runs.

Examples:
  tensortap ls runs/digits
  tensortap ls runs/digits --tensors '^gradient/' --all
  tensortap ls runs/digits --json)";

}  // namespace

const CommandDescriptor& ls_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "tensors",
                         .kind = ArgumentKind::kOption,
                         .value_name = "REGEX",
                         .doc = "only tensors whose name the expression finds"},
      ArgumentDescriptor{.name = "all",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "every tensor, not only the first 40"},
      ArgumentDescriptor{.name = "json",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "as JSON, with every tensor"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "ls",
      .summary = "Show what is in a run: workers, steps, collections, rules, tensors.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
