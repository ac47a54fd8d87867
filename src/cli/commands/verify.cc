// `tensortap verify`: reads every frame of a run and says what is readable.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "cli/run_files.h"
#include "storage/storage.h"
#include "trace/trace_reader.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;

// What to verify: a whole run, or one segment of it.
struct Target {
  std::string run;
  std::string segment;  // its name inside the run; "" = all
};

// RUN may name RUN/trace/<worker>/<seq>.ttap.
Target find_target(const std::string& argument) {
  std::error_code ignored;
  if (!argument.ends_with(".ttap") || !fs::is_regular_file(argument, ignored)) {
    return {argument, ""};
  }
  const fs::path path = fs::absolute(argument).lexically_normal();
  const fs::path worker = path.parent_path();
  const fs::path trace = worker.parent_path();
  if (trace.filename() != "trace") {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a segment is verified inside its run (RUN/trace/WORKER/SEGMENT.ttap), and this "
            "one lies elsewhere: {}",
            cli::escape(argument)));
  }
  return {trace.parent_path().string(), path.lexically_relative(trace.parent_path()).string()};
}

struct SegmentVerdict {
  SegmentReport report;
  bool is_torn = false;  // what a killed training leaves, and nothing else
  bool is_damaged = false;
};

struct Verdict {
  std::vector<SegmentVerdict> segments;
  std::vector<SourceProblem> problems;  // of the run as a whole
  std::uint64_t step_count = 0;
  bool is_clean() const {
    return problems.empty() && std::none_of(segments.begin(), segments.end(),
                                            [](const auto& segment) { return segment.is_damaged; });
  }
};

// A half-written frame at the end is no damage, unless the worker said that it had closed the file.
SegmentVerdict judge(const SegmentReport& report, bool is_closed) {
  SegmentVerdict verdict{report};
  verdict.is_torn = report.torn_tail_bytes > 0 && report.problems.size() == 1 && !is_closed;
  verdict.is_damaged = !report.problems.empty() && !verdict.is_torn;
  return verdict;
}

std::string folder_of(std::string_view name) {
  return std::string(name.substr(0, name.rfind('/')));
}

// Names sort by worker, then by number: the last of a worker is the one it closed when it ended.
bool is_closed(const Storage& storage, const std::vector<SegmentReport>& segments, std::size_t i) {
  const std::string folder = folder_of(segments[i].name);
  const bool is_last = i + 1 == segments.size() || folder_of(segments[i + 1].name) != folder;
  return is_last && storage.exists(end_mark_name(folder.substr(folder.rfind('/') + 1)));
}

Verdict verify(const Target& target) {
  const std::shared_ptr<Storage> storage = cli::open_run_storage(target.run);
  const VerifyReport report = verify_trace(*storage);
  if (report.segments.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("no run with any segment here: {}", cli::escape(target.run)));
  }
  Verdict verdict;
  for (std::size_t i = 0; i < report.segments.size(); ++i) {
    const SegmentReport& segment = report.segments[i];
    if (!target.segment.empty() && segment.name != target.segment) continue;
    verdict.segments.push_back(judge(segment, is_closed(*storage, report.segments, i)));
    verdict.step_count += segment.step_count;
  }
  if (target.segment.empty()) verdict.problems = cli::check_run_files(storage);
  return verdict;
}

std::string_view state_of(const SegmentVerdict& segment) {
  if (segment.is_damaged) return "DAMAGED";
  if (segment.is_torn) return "torn tail";
  return segment.report.is_sealed ? "ok" : "ok, not sealed";
}

void print_problem(const SourceProblem& problem) {
  cli::write_out(fmt::format("{}: {}\n", cli::escape(problem.where), cli::escape(problem.what)));
}

void print_details(const SegmentVerdict& segment) {
  if (!segment.is_torn) {
    for (const SourceProblem& problem : segment.report.problems) print_problem(problem);
    return;
  }
  cli::write_out(fmt::format(
      "{}: torn tail of {} after the last complete step; every step before it is whole\n",
      cli::escape(segment.report.name), cli::plural(segment.report.torn_tail_bytes, "byte")));
}

void print_text(const Verdict& verdict) {
  cli::Table table;
  table.add_column("segment");
  for (const char* title : {"size", "readable", "frames", "steps"}) {
    table.add_column(title, cli::Table::Align::kRight);
  }
  table.add_column("state");
  for (const SegmentVerdict& segment : verdict.segments) {
    const SegmentReport& report = segment.report;
    table.add_row({cli::escape(report.name), cli::with_separators(report.size_bytes),
                   cli::with_separators(report.readable_bytes),
                   cli::with_separators(report.frame_count),
                   cli::with_separators(report.step_count), std::string(state_of(segment))});
  }
  cli::write_out(table.text() + "\n");
  for (const SegmentVerdict& segment : verdict.segments) print_details(segment);
  for (const SourceProblem& problem : verdict.problems) print_problem(problem);
  cli::write_out(fmt::format("{}: {} readable in {}\n", verdict.is_clean() ? "clean" : "DAMAGED",
                             cli::plural(verdict.step_count, "step"),
                             cli::plural(verdict.segments.size(), "segment")));
}

void append_problems_json(JsonWriter& json, const std::vector<SourceProblem>& problems) {
  json.key("problems").begin_array();
  for (const SourceProblem& problem : problems) {
    json.begin_object().field("where", problem.where).field("what", problem.what).end_object();
  }
  json.end_array();
}

void append_segment_json(JsonWriter& json, const SegmentVerdict& segment) {
  const SegmentReport& report = segment.report;
  json.begin_object().field("name", report.name);
  json.field("size_bytes", report.size_bytes).field("readable_bytes", report.readable_bytes);
  json.field("frame_count", report.frame_count).field("step_count", report.step_count);
  json.field("is_sealed", report.is_sealed).field("is_damaged", segment.is_damaged);
  json.field("torn_tail_bytes", report.torn_tail_bytes);
  append_problems_json(json, report.problems);
  json.end_object();
}

void print_json(const std::string& run, const Verdict& verdict) {
  JsonWriter json(2);
  json.begin_object().field("run", run).field("is_clean", verdict.is_clean());
  json.field("step_count", verdict.step_count);
  append_problems_json(json, verdict.problems);
  json.key("segments").begin_array();
  for (const SegmentVerdict& segment : verdict.segments) append_segment_json(json, segment);
  json.end_array().end_object();
  cli::write_out(json.text() + "\n");
}

int run(const ArgumentValues& arguments) {
  const Target target = find_target(arguments.get("run"));
  const Verdict verdict = verify(target);
  arguments.has("json") ? print_json(target.run, verdict) : print_text(verdict);
  return verdict.is_clean() ? kExitOk : kExitError;
}

constexpr std::string_view kDoc =
    R"(Says for each segment how much of it is readable. Exit code 0: everything that was written in full can
be read; 1: damage. A half-written step at the end of a trace without an end mark is what a killed
training leaves behind, and no damage: it is named and does not change the exit code. In a run that
ended, the same is a truncated file, and damage.

Examples:
  tensortap verify runs/digits
  tensortap verify runs/digits/trace/worker_0/00000000.ttap
  tensortap verify runs/digits --json)";

}  // namespace

const CommandDescriptor& verify_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{.name = "run",
                         .value_name = "RUN",
                         .doc = "a run's directory, or one .ttap segment in it",
                         .is_required = true},
      ArgumentDescriptor{
          .name = "json", .kind = ArgumentKind::kFlag, .value_name = "", .doc = "as JSON"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "verify",
      .summary = "Check every frame of a run against its checksums.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
