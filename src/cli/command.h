// A subcommand of the `tensortap` program: one file each in cli/commands/. CLI11 stays in main.cc
// and command.cc; commands declare their arguments here and get them parsed.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

// Exit codes of the program.
inline constexpr int kExitOk = 0;        // done; for `check`: nothing found
inline constexpr int kExitError = 1;     // a run that is missing or damaged, an I/O error
inline constexpr int kExitUsage = 2;     // unknown option, rule, parameter
inline constexpr int kExitFindings = 3;  // `check` found something

enum class ArgumentKind { kPositional, kOption, kFlag };

struct ArgumentDescriptor {
  std::string_view name;  // "run" (positional), "stat" (--stat), "csv" (--csv)
  ArgumentKind kind = ArgumentKind::kPositional;
  std::string_view value_name;  // "NAME"
  std::string_view doc;
  bool is_required = false;
  bool is_repeatable = false;
};

// What the user gave, by argument name.
class ArgumentValues {
 public:
  bool has(std::string_view name) const;
  const std::string& get(std::string_view name) const;  // the first; "" when not given
  std::span<const std::string> get_all(std::string_view name) const;
  void add(std::string_view name, std::string value);

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct CommandDescriptor {
  std::string_view name;
  std::string_view summary;
  std::string_view doc;  // shown by --help, with examples
  std::span<const ArgumentDescriptor> arguments;
  // Writes the answer to stdout and returns an exit code; throws Error.
  int (*run)(const ArgumentValues& arguments);
};

// Parses the command line, runs the command, turns an Error into one line on stderr. The whole
// program but `main`.
int run_program(int argc, const char* const* argv);

}  // namespace tensortap
