#include "cli/command.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <list>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"

namespace tensortap {
namespace {

// Where CLI11 puts what it parsed, until it becomes ArgumentValues. Lists, since CLI11 keeps
// addresses.
struct ParsedCommand {
  const CommandDescriptor* descriptor = nullptr;
  CLI::App* app = nullptr;
  std::list<std::string> single;
  std::list<std::vector<std::string>> repeated;
  std::list<bool> flags;
  std::vector<std::function<void(ArgumentValues&)>> collect;
};

std::string option_name(const ArgumentDescriptor& argument) {
  return argument.kind == ArgumentKind::kPositional ? std::string(argument.value_name)
                                                    : fmt::format("--{}", argument.name);
}

void add_value_argument(ParsedCommand& command, const ArgumentDescriptor& argument) {
  const std::string name(argument.name);
  CLI::Option* option = nullptr;
  if (argument.is_repeatable) {
    std::vector<std::string>& values = command.repeated.emplace_back();
    option = command.app->add_option(option_name(argument), values, std::string(argument.doc));
    // One value each time it is given: `--stat mean RUN` must not swallow RUN.
    option->allow_extra_args(false);
    command.collect.emplace_back([name, &values](ArgumentValues& out) {
      for (const std::string& value : values) out.add(name, value);
    });
  } else {
    std::string& value = command.single.emplace_back();
    option = command.app->add_option(option_name(argument), value, std::string(argument.doc));
    command.collect.emplace_back([name, &value, option](ArgumentValues& out) {
      if (option->count() > 0) out.add(name, value);
    });
  }
  // A positional is called by its value's name already: "RUN", not "run RUN".
  const bool is_positional = argument.kind == ArgumentKind::kPositional;
  option->type_name(is_positional ? "" : std::string(argument.value_name));
  if (argument.is_required) option->required();
}

void add_argument(ParsedCommand& command, const ArgumentDescriptor& argument) {
  if (argument.kind != ArgumentKind::kFlag) {
    add_value_argument(command, argument);
    return;
  }
  bool& flag = command.flags.emplace_back(false);
  command.app->add_flag(option_name(argument), flag, std::string(argument.doc));
  command.collect.emplace_back([name = std::string(argument.name), &flag](ArgumentValues& out) {
    if (flag) out.add(name, "true");
  });
}

void add_commands(CLI::App& app, std::list<ParsedCommand>& commands) {
  for (const CommandDescriptor* descriptor : builtin_commands()) {
    ParsedCommand& command = commands.emplace_back();
    command.descriptor = descriptor;
    command.app =
        app.add_subcommand(std::string(descriptor->name), std::string(descriptor->summary));
    command.app->footer("\n" + cli::wrap(descriptor->doc));
    for (const ArgumentDescriptor& argument : descriptor->arguments)
      add_argument(command, argument);
  }
}

// CLI11 would only say that an argument was not expected.
bool is_unknown_command(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]).starts_with('-')) return false;
  const auto& commands = builtin_commands();
  return std::none_of(commands.begin(), commands.end(), [&](const CommandDescriptor* descriptor) {
    return descriptor->name == argv[1];
  });
}

int report_unknown_command(const std::string& given) {
  std::vector<std::string> names;
  for (const CommandDescriptor* descriptor : builtin_commands())
    names.emplace_back(descriptor->name);
  cli::write_error(fmt::format("unknown command '{}'{}; the commands are: {}", cli::escape(given),
                               did_you_mean(given, names), join(names, ", ")));
  return kExitUsage;
}

int run_command(const ParsedCommand& command) {
  ArgumentValues values;
  for (const auto& collect : command.collect) collect(values);
  return command.descriptor->run(values);
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App app(
      "Records what happens to every tensor of a training, and answers questions about it.",
      "tensortap");
  app.set_version_flag("--version", "tensortap " TENSORTAP_VERSION);
  app.footer("\n`tensortap COMMAND --help` tells more, with examples.");
  app.require_subcommand(1);
  std::list<ParsedCommand> commands;
  add_commands(app, commands);
  if (is_unknown_command(argc, argv)) return report_unknown_command(argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request) == 0 ? kExitOk : kExitError;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    cli::write_error(fmt::format("{} (try `tensortap{} --help`)", cli::escape(error.what()),
                                 chosen.empty() ? "" : " " + chosen.front()->get_name()));
    return kExitUsage;
  }
  for (const ParsedCommand& command : commands) {
    if (command.app->parsed()) return run_command(command);
  }
  return kExitUsage;
}

// A reader that went away (`| head`) is no error; a disk that is full is one.
int finish_output(int code) {
  const bool has_failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!has_failed || !cli::is_out_open()) return code;
  cli::write_error("the answer could not be written in full");
  return kExitError;
}

}  // namespace

bool ArgumentValues::has(std::string_view name) const { return values_.contains(name); }

const std::string& ArgumentValues::get(std::string_view name) const {
  static const std::string kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second.front();
}

std::span<const std::string> ArgumentValues::get_all(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::span<const std::string>() : found->second;
}

void ArgumentValues::add(std::string_view name, std::string value) {
  values_[std::string(name)].push_back(std::move(value));
}

int run_program(int argc, const char* const* argv) {
  int code = kExitError;
  try {
    code = parse_and_run(argc, argv);
  } catch (const cli::UsageError& error) {
    cli::write_error(error.what());
    code = kExitUsage;
  } catch (const std::exception& error) {
    cli::write_error(error.what());
  }
  return finish_output(code);
}

}  // namespace tensortap
