// `tensortap verify`: reads every frame of a run and says what is readable.
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
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

// Bytes after the last complete step of a segment that was never sealed: what a killed training
// leaves.
std::optional<std::uint64_t> torn_tail_bytes(const SegmentReport& segment) {
  if (segment.is_sealed || segment.readable_bytes >= segment.size_bytes) return std::nullopt;
  return segment.size_bytes - segment.readable_bytes;
}

bool is_damaged(const SegmentReport& segment) {
  return !segment.problems.empty() && !torn_tail_bytes(segment);
}

std::string_view state_of(const SegmentReport& segment) {
  if (is_damaged(segment)) return "DAMAGED";
  if (torn_tail_bytes(segment)) return "torn tail";
  return segment.is_sealed ? "ok" : "ok, not sealed";
}

void print_details(const SegmentReport& segment) {
  if (const auto torn = torn_tail_bytes(segment)) {
    cli::write_out(fmt::format(
        "{}: torn tail of {} after the last complete step; every step before it is whole\n",
        cli::escape(segment.name), cli::plural(*torn, "byte")));
    return;
  }
  for (const SourceProblem& problem : segment.problems) {
    cli::write_out(fmt::format("{}: {}\n", cli::escape(problem.where), cli::escape(problem.what)));
  }
}

void print_text(const VerifyReport& report, bool is_clean) {
  cli::Table table;
  table.add_column("segment");
  for (const char* title : {"size", "readable", "frames", "steps"}) {
    table.add_column(title, cli::Table::Align::kRight);
  }
  table.add_column("state");
  for (const SegmentReport& segment : report.segments) {
    table.add_row({cli::escape(segment.name), cli::with_separators(segment.size_bytes),
                   cli::with_separators(segment.readable_bytes),
                   cli::with_separators(segment.frame_count),
                   cli::with_separators(segment.step_count), std::string(state_of(segment))});
  }
  cli::write_out(table.text() + "\n");
  for (const SegmentReport& segment : report.segments) print_details(segment);
  cli::write_out(fmt::format("{}: {} readable in {}\n", is_clean ? "clean" : "DAMAGED",
                             cli::plural(report.step_count, "step"),
                             cli::plural(report.segments.size(), "segment")));
}

void append_segment_json(JsonWriter& json, const SegmentReport& segment) {
  json.begin_object().field("name", segment.name);
  json.field("size_bytes", segment.size_bytes).field("readable_bytes", segment.readable_bytes);
  json.field("frame_count", segment.frame_count).field("step_count", segment.step_count);
  json.field("is_sealed", segment.is_sealed).field("is_damaged", is_damaged(segment));
  json.field("torn_tail_bytes", torn_tail_bytes(segment).value_or(0));
  json.key("problems").begin_array();
  for (const SourceProblem& problem : segment.problems) {
    json.begin_object().field("where", problem.where).field("what", problem.what).end_object();
  }
  json.end_array().end_object();
}

void print_json(const std::string& run, const VerifyReport& report, bool is_clean) {
  JsonWriter json(2);
  json.begin_object().field("run", run).field("is_clean", is_clean);
  json.field("step_count", report.step_count);
  json.key("segments").begin_array();
  for (const SegmentReport& segment : report.segments) append_segment_json(json, segment);
  json.end_array().end_object();
  cli::write_out(json.text() + "\n");
}

VerifyReport verify(const Target& target) {
  VerifyReport report = verify_trace(*cli::open_run_storage(target.run));
  if (target.segment.empty()) {
    if (report.segments.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("no run with any segment here: {}", cli::escape(target.run)));
    }
    return report;
  }
  std::erase_if(report.segments,
                [&](const SegmentReport& segment) { return segment.name != target.segment; });
  report.step_count = 0;
  for (const SegmentReport& segment : report.segments) report.step_count += segment.step_count;
  return report;
}

int run(const ArgumentValues& arguments) {
  const Target target = find_target(arguments.get("run"));
  const VerifyReport report = verify(target);
  bool is_clean = !report.segments.empty();
  for (const SegmentReport& segment : report.segments) is_clean = is_clean && !is_damaged(segment);
  arguments.has("json") ? print_json(target.run, report, is_clean) : print_text(report, is_clean);
  return is_clean ? kExitOk : kExitError;
}

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
      .doc =
          "Says for each segment how much of it is readable. Exit code 0: everything that was "
          "written "
          "in full can be read; 1: damage. A half-written step at the end of a segment that was "
          "never sealed is what a killed training leaves behind, and no damage: it is named and "
          "does "
          "not change the exit code.\n\nExamples:\n"
          "  tensortap verify runs/digits\n"
          "  tensortap verify runs/digits/trace/worker_0/000000.ttap\n"
          "  tensortap verify runs/digits --json",
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
