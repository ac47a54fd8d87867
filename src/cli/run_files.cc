#include "cli/run_files.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trace/trace_reader.h"

namespace tensortap::cli {
namespace {

using Json = nlohmann::json;

// An empty object when the text is not one.
Json parse_object(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : Json::object();
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::uint64_t> count_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

void check_end_mark(const Storage& storage, const WorkerSource& worker,
                    std::vector<SourceProblem>& problems) {
  const std::string name = end_mark_name(worker.name());
  const std::optional<std::string> text = storage.get(name);
  if (!text) return;  // still running or killed
  const Json mark = parse_object(*text);
  const auto written = count_of(mark, "written_steps");
  const auto session = count_of(mark, "session");
  if (!written || !session) {
    problems.push_back({name, "the end mark cannot be read"});
    return;
  }
  const auto steps = worker.steps();
  const auto readable = static_cast<std::uint64_t>(std::count_if(
      steps.begin(), steps.end(), [&](const StepInfo& step) { return step.session == *session; }));
  if (readable >= *written) return;
  problems.push_back(
      {name, fmt::format("{} steps were written in the last session, and {} can be read", *written,
                         readable)});
}

}  // namespace

RunDescription describe_run(const std::string& run_json) {
  const Json run = parse_object(run_json);
  RunDescription description;
  description.run_id = text_of(run, "id");
  description.framework = text_of(run, "framework");
  description.created = text_of(run, "created");
  description.is_damaged = description.run_id.empty();
  return description;
}

std::vector<Finding> read_findings(const Storage& storage) {
  std::vector<Finding> findings;
  for (const StorageEntry& entry : storage.list("rules/")) {
    const bool is_findings =
        entry.name.ends_with(".jsonl") && !entry.name.ends_with(".actions.jsonl");
    if (!is_findings) continue;
    const std::string text = storage.get(entry.name).value_or("");
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      if (auto finding = finding_from_json(std::string_view(text).substr(start, end - start))) {
        findings.push_back(std::move(*finding));
      }
      start = end + 1;
    }
  }
  return findings;
}

std::vector<SourceProblem> check_run_files(const std::shared_ptr<Storage>& storage) {
  std::vector<SourceProblem> problems;
  try {
    const std::shared_ptr<TraceSource> source = open_trace(storage);
    if (describe_run(source->run_json()).is_damaged) {
      problems.push_back({kRunFile, "the description of the run is missing or cannot be read"});
    }
    for (const WorkerSource* worker : source->workers())
      check_end_mark(*storage, *worker, problems);
  } catch (const Error& error) {
    problems.push_back({storage->uri(), error.what()});
  }
  return problems;
}

}  // namespace tensortap::cli
