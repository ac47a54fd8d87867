// `tensortap show`: one tensor over the steps, as a table, CSV or JSON.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"

namespace tensortap {
namespace {

struct Request {
  std::string tensor;
  std::string worker;
  Mode mode = Mode::kGlobal;
  cli::StepRange steps;
  std::vector<StatisticId> statistics;
};

// The asked-for statistics of a tensor; values[i][j] is statistic i at steps[j].
struct Answer {
  std::vector<std::int64_t> steps;
  std::vector<std::vector<double>> values;
  std::map<std::int64_t, std::string> texts;  // of a tensor that holds text
};

// What tells most at a glance; a loss has only one value and needs no spread.
std::vector<StatisticId> default_statistics(const Trial& trial, const Request& request) {
  using enum StatisticId;
  const std::vector<std::int64_t> steps = trial.tensor_steps(request.tensor, request.mode);
  if (!steps.empty()) {
    const auto row = trial.row(request.tensor, steps.back(), request.mode, request.worker);
    if (row && row->statistics.count == 1) return {kMean, kNanCount, kInfCount};
  }
  return {kMean, kStd, kMin, kMax, kL2, kNanCount, kInfCount};
}

void read_texts(const Trial& trial, const Request& request, Answer& answer) {
  for (const std::int64_t step : trial.tensor_steps(request.tensor, request.mode)) {
    if (!request.steps.holds(step)) continue;
    auto text = trial.text(request.tensor, step, request.mode, request.worker);
    if (text) answer.texts.emplace(step, std::move(*text));
  }
}

Answer read(const Trial& trial, const Request& request) {
  Answer answer;
  for (const StatisticId statistic : request.statistics) {
    const Column column = trial.column(request.tensor, statistic, request.mode, request.worker);
    std::vector<double>& values = answer.values.emplace_back();
    const bool is_first = answer.values.size() == 1;
    for (std::size_t i = 0; i < column.steps.size(); ++i) {
      if (!request.steps.holds(column.steps[i])) continue;
      if (is_first) answer.steps.push_back(column.steps[i]);
      values.push_back(column.values[i]);
    }
  }
  if (answer.steps.empty()) read_texts(trial, request, answer);
  return answer;
}

std::string_view name_of(StatisticId id) { return statistic_descriptor(id).name; }

void print_csv(const Request& request, const Answer& answer) {
  std::string line = "step";
  for (const StatisticId id : request.statistics) line += fmt::format(",{}", name_of(id));
  cli::write_out(line + "\n");
  for (std::size_t j = 0; j < answer.steps.size(); ++j) {
    line = fmt::format("{}", answer.steps[j]);
    for (const auto& values : answer.values) line += "," + cli::exact_number(values[j]);
    cli::write_out(line + "\n");
  }
}

void print_json(const Trial& trial, const Request& request, const Answer& answer) {
  JsonWriter json;
  json.begin_object().field("run", trial.uri()).field("tensor", request.tensor);
  json.field("mode", mode_name(request.mode)).field("worker", request.worker);
  json.key("steps").begin_array();
  for (const std::int64_t step : answer.steps) json.value(step);
  json.end_array().key("statistics").begin_object();
  for (std::size_t i = 0; i < answer.values.size(); ++i) {
    json.key(name_of(request.statistics[i])).begin_array();
    for (const double value : answer.values[i]) json.value(value);
    json.end_array();
  }
  json.end_object();
  if (!answer.texts.empty()) {
    json.key("texts").begin_object();
    for (const auto& [step, text] : answer.texts) json.field(fmt::format("{}", step), text);
    json.end_object();
  }
  json.end_object();
  cli::write_out(json.text() + "\n");
}

void print_headline(const Trial& trial, const Request& request) {
  std::string line = cli::escape(request.tensor);
  const std::vector<std::int64_t> steps = trial.tensor_steps(request.tensor, request.mode);
  if (!steps.empty()) {
    const auto layout = trial.layout(request.tensor, steps.back(), request.mode, request.worker);
    if (layout) line += "  " + cli::layout_text(*layout);
    if (request.worker.empty()) {
      const auto workers = trial.tensor_workers(request.tensor, steps.back(), request.mode);
      if (workers.size() > 1) {
        line += fmt::format("  ({} have it; --worker picks one, this is {})",
                            cli::plural(workers.size(), "worker"), cli::escape(workers.front()));
      }
    }
  }
  cli::write_out(line + "\n");
}

void print_sparkline(const Request& request, const Answer& answer) {
  const std::string line = cli::sparkline(answer.values.front());
  if (line.empty()) return;
  cli::write_out(fmt::format("{} {}\n", name_of(request.statistics.front()), line));
}

// The mode of each step when a run holds several; empty otherwise.
std::vector<std::string> modes_of(const Trial& trial, const Request& request,
                                  const Answer& answer) {
  std::vector<std::string> modes;
  if (request.mode != Mode::kGlobal) return modes;
  for (const std::int64_t step : answer.steps) {
    const std::optional<StepInfo> info = trial.step_info(step);
    modes.emplace_back(info ? mode_name(info->mode) : "-");
  }
  if (std::set<std::string>(modes.begin(), modes.end()).size() < 2) modes.clear();
  return modes;
}

void print_table(const Trial& trial, const Request& request, const Answer& answer) {
  print_headline(trial, request);
  print_sparkline(request, answer);
  const std::vector<std::string> modes = modes_of(trial, request, answer);
  cli::Table table;
  table.add_column("step", cli::Table::Align::kRight);
  if (!modes.empty()) table.add_column("mode");
  for (const StatisticId id : request.statistics) {
    table.add_column(name_of(id), cli::Table::Align::kRight);
  }
  for (std::size_t j = 0; j < answer.steps.size(); ++j) {
    std::vector<std::string> cells = {fmt::format("{}", answer.steps[j])};
    if (!modes.empty()) cells.push_back(modes[j]);
    for (const auto& values : answer.values) cells.push_back(cli::short_number(values[j]));
    table.add_row(std::move(cells));
  }
  cli::write_out(table.text());
}

void print_texts(const Request& request, const Answer& answer) {
  cli::write_out(cli::escape(request.tensor) + "  text\n");
  cli::Table table;
  table.add_column("step", cli::Table::Align::kRight);
  table.add_column("text");
  for (const auto& [step, text] : answer.texts) {
    table.add_row({fmt::format("{}", step), cli::escape(text)});
  }
  cli::write_out(table.text());
}

Request parse_request(const ArgumentValues& arguments) {
  if (arguments.has("csv") && arguments.has("json")) {
    throw cli::UsageError("--csv and --json exclude each other");
  }
  Request request;
  request.tensor = arguments.get("tensor");
  request.worker = arguments.get("worker");
  request.mode = cli::parse_mode(arguments.get("mode"));
  request.steps = cli::parse_steps(arguments.get("steps"));
  request.statistics = cli::parse_statistics(arguments.get_all("stat"));
  return request;
}

int run(const ArgumentValues& arguments) {
  Request request = parse_request(arguments);
  const std::shared_ptr<Trial> trial = cli::open_run(arguments.get("run"));
  cli::require_tensor(*trial, request.tensor);
  cli::require_worker(*trial, request.worker);
  if (request.statistics.empty()) request.statistics = default_statistics(*trial, request);
  const Answer answer = read(*trial, request);
  cli::warn_of_damage(*trial);
  if (answer.steps.empty() && answer.texts.empty()) {
    cli::write_error(fmt::format("'{}' has no value in the steps, mode and worker asked for",
                                 cli::escape(request.tensor)));
  }
  if (arguments.has("json")) {
    print_json(*trial, request, answer);
  } else if (arguments.has("csv")) {
    print_csv(request, answer);
  } else if (!answer.texts.empty()) {
    print_texts(request, answer);
  } else if (!answer.steps.empty()) {
    print_table(*trial, request, answer);
  }
  return kExitOk;
}

constexpr std::array kArguments = {
    ArgumentDescriptor{
        .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
    ArgumentDescriptor{.name = "tensor",
                       .value_name = "TENSOR",
                       .doc = "the tensor's whole name, as `tensortap ls` shows it",
                       .is_required = true},
    ArgumentDescriptor{.name = "stat",
                       .kind = ArgumentKind::kOption,
                       .value_name = "NAME",
                       .doc = "a statistic (mean, abs_max, l2 …); repeatable",
                       .is_repeatable = true},
    ArgumentDescriptor{.name = "steps",
                       .kind = ArgumentKind::kOption,
                       .value_name = "A:B",
                       .doc = "only steps from A up to, not including, B"},
    ArgumentDescriptor{
        .name = "mode",
        .kind = ArgumentKind::kOption,
        .value_name = "MODE",
        .doc =
            "TRAIN, EVAL or PREDICT: steps count within the mode; default all, counted globally"},
    ArgumentDescriptor{.name = "worker",
                       .kind = ArgumentKind::kOption,
                       .value_name = "NAME",
                       .doc = "default: the first that has the tensor"},
    ArgumentDescriptor{.name = "csv",
                       .kind = ArgumentKind::kFlag,
                       .value_name = "",
                       .doc = "as CSV, numbers in full"},
    ArgumentDescriptor{.name = "json",
                       .kind = ArgumentKind::kFlag,
                       .value_name = "",
                       .doc = "as JSON, one list a statistic"},
};

constexpr std::string_view kDoc =
    R"(Statistics are over the finite elements; NaN and infinities are counted beside them. In JSON they are
the strings "NaN", "Infinity" and "-Infinity".

Examples:
  tensortap show runs/digits loss
  tensortap show runs/digits gradient/Net_fc1.weight --stat abs_mean --stat l2 --steps 0:100
  tensortap show runs/digits loss --csv > loss.csv)";

}  // namespace

const CommandDescriptor& show_command() {
  static constexpr CommandDescriptor kDescriptor{
      .name = "show",
      .summary = "Show the statistics of one tensor over the steps.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
