#include "cli/run_argument.h"

#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "base/regex.h"
#include "base/text.h"
#include "cli/output.h"

namespace tensortap::cli {
namespace {

namespace fs = std::filesystem;

// A colon may stand in a path too; the storage knows.
bool may_have_scheme(const std::string& run) { return run.find(':') != std::string::npos; }

std::optional<std::int64_t> parse_bound(std::string_view text, std::string_view whole) {
  if (trim(text).empty()) return std::nullopt;
  const std::optional<std::int64_t> bound = parse_int(text);
  if (!bound || *bound < 0) {
    throw UsageError(fmt::format(
        "--steps takes A:B with A and B from 0 (either may be left out), not '{}'", escape(whole)));
  }
  return bound;
}

// Names that `pattern` finds as a regular expression; none when it is not one.
std::vector<std::string> matches_of(std::string_view pattern, std::span<const std::string> names) {
  std::vector<std::string> found;
  try {
    const Regex regex(pattern);
    std::copy_if(names.begin(), names.end(), std::back_inserter(found),
                 [&](const std::string& name) { return regex.search(name); });
  } catch (const Error&) {
    // Not meant as one.
  }
  return found;
}

}  // namespace

void require_run_directory(const std::string& run) {
  if (run.empty()) throw UsageError("RUN is empty");
  std::error_code ignored;
  const fs::file_status status = fs::status(run, ignored);
  if (!fs::exists(status)) {
    if (may_have_scheme(run) || run.starts_with('~')) return;
    throw Error(ErrorCode::kNotFound, fmt::format("there is no run: {}", escape(run)));
  }
  if (!fs::is_directory(status)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a run is a directory, and this is a file: {}", escape(run)));
  }
}

std::shared_ptr<Storage> open_run_storage(const std::string& run) {
  require_run_directory(run);
  return open_storage(run);
}

std::shared_ptr<Trial> open_run(const std::string& run) {
  require_run_directory(run);
  return Trial::open(run);
}

void warn_of_damage(Trial& trial) {
  const std::vector<SourceProblem> problems = trial.source().problems();
  if (problems.empty()) return;
  const std::string more = problems.size() == 1 ? "" : fmt::format("; {} in all", problems.size());
  write_error(fmt::format(
      "WARNING: part of the run cannot be read ({}: {}{}); `tensortap verify` says what",
      escape(problems.front().where), escape(problems.front().what), more));
}

StepRange parse_steps(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw UsageError(
        fmt::format("--steps takes A:B (from A up to, not including, B), not '{}'", escape(text)));
  }
  const StepRange range{parse_bound(text.substr(0, colon), text),
                        parse_bound(text.substr(colon + 1), text)};
  if (range.first && range.last && *range.first >= *range.last) {
    throw UsageError(fmt::format("--steps {} holds no step: B must be above A", escape(text)));
  }
  return range;
}

Mode parse_mode(std::string_view text) {
  if (text.empty()) return Mode::kGlobal;
  if (const std::optional<Mode> mode = mode_from_name(text)) return *mode;
  throw UsageError(
      fmt::format("unknown mode '{}'; the modes are: TRAIN, EVAL, PREDICT, GLOBAL", escape(text)));
}

std::vector<StatisticId> parse_statistics(std::span<const std::string> names) {
  std::vector<StatisticId> ids;
  for (const std::string& name : names) {
    const std::optional<StatisticId> id = statistic_from_name(name);
    if (!id) {
      std::vector<std::string> valid;
      for (const StatisticDescriptor& row : statistic_table()) valid.emplace_back(row.name);
      throw UsageError(fmt::format("unknown statistic '{}'{}; the statistics are: {}", escape(name),
                                   did_you_mean(name, valid), join(valid, ", ")));
    }
    ids.push_back(*id);
  }
  return ids;
}

void require_regex(const std::string& pattern) {
  try {
    const Regex regex(pattern);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void require_tensor(const Trial& trial, const std::string& name) {
  if (trial.has_tensor(name)) return;
  const std::vector<std::string> names = trial.tensor_names();
  const std::vector<std::string> matches = matches_of(name, names);
  std::string hint = did_you_mean(name, names);
  if (hint.empty() && !matches.empty()) {
    hint =
        fmt::format("; as a regular expression it matches {}, for example '{}': name one of them",
                    plural(matches.size(), "tensor"), matches.front());
  }
  if (hint.empty()) hint = "; `tensortap ls` shows the names";
  throw Error(ErrorCode::kNotFound, fmt::format("unknown tensor '{}'{}: {}", escape(name),
                                                escape(hint), escape(trial.uri())));
}

void require_worker(const Trial& trial, const std::string& worker) {
  if (worker.empty()) return;
  const std::vector<std::string> workers = trial.workers();
  if (std::find(workers.begin(), workers.end(), worker) != workers.end()) return;
  throw Error(ErrorCode::kNotFound, fmt::format("unknown worker '{}'; the workers are: {}",
                                                escape(worker), escape(join(workers, ", "))));
}

std::string layout_text(const Layout& layout) {
  std::string text = fmt::format("{} [", dtype_name(layout.dtype));
  for (std::size_t i = 0; i < layout.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += fmt::format("{}", layout.shape[i]);
  }
  return text + "]";
}

}  // namespace tensortap::cli
