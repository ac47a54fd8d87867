// What several commands take from the command line: a run, a range of steps, a mode, statistics,
// and the tensors of a run. Used by cli/commands. Every function throws Error with a sentence for
// the user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "storage/storage.h"
#include "tensor/statistics.h"
#include "trace/mode.h"
#include "trial/trial.h"

namespace tensortap::cli {

// What the user typed is wrong: exit code kExitUsage, where other errors give kExitError.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

// Throws when a local path is missing or is not a directory.
void require_run_directory(const std::string& run);
std::shared_ptr<Storage> open_run_storage(const std::string& run);
std::shared_ptr<Trial> open_run(const std::string& run);

// Says on stderr what of the run could not be read: an answer from the rest must not look whole.
void warn_of_damage(Trial& trial);

struct StepRange {
  std::optional<std::int64_t> first;
  std::optional<std::int64_t> last;  // exclusive
  bool holds(std::int64_t step) const {
    return (!first || step >= *first) && (!last || step < *last);
  }
};
// "A:B", "A:", ":B" as Python's slices; "" = all.
StepRange parse_steps(std::string_view text);
Mode parse_mode(std::string_view text);  // "" = GLOBAL
std::vector<StatisticId> parse_statistics(std::span<const std::string> names);

// Throws UsageError when it does not compile.
void require_regex(const std::string& pattern);

// Throws Error(kNotFound) with near names, or with what `name` would match as a regex.
void require_tensor(const Trial& trial, const std::string& name);
void require_worker(const Trial& trial, const std::string& worker);  // "" is fine

// "float32 [64, 10]"
std::string layout_text(const Layout& layout);

}  // namespace tensortap::cli
