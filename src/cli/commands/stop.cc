// `tensortap stop`: asks a running training to stop.
#include <array>
#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "session/control.h"

namespace tensortap {
namespace {

constexpr std::chrono::milliseconds kPollInterval(50);

double parse_wait_s(const std::string& text) {
  const auto seconds = parse_double(text);
  if (seconds && *seconds >= 0 && *seconds < 1e6) return *seconds;
  throw cli::UsageError(
      fmt::format("--wait takes seconds, 0 or more, not '{}'", cli::escape(text)));
}

int wait_for_answer(const Storage& storage, const std::string& id, double wait_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (true) {
    const std::vector<std::string> workers = answers(storage, id);
    if (!workers.empty()) {
      cli::write_out(fmt::format("the training obeys ({})\n", cli::escape(join(workers, ", "))));
      return kExitOk;
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  cli::write_error(
      fmt::format("no answer within {} s: the training is between two steps, or gone", wait_s));
  return kExitError;
}

int run(const ArgumentValues& arguments) {
  const double wait_s = arguments.has("wait") ? parse_wait_s(arguments.get("wait")) : 0;
  const std::string& path = arguments.get("run");
  if (cli::open_run(path)->has_ended()) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the training has ended already: {}", cli::escape(path)));
  }
  const std::shared_ptr<Storage> storage = cli::open_run_storage(path);
  ControlRequest request;
  request.finding.message =
      arguments.has("reason") ? arguments.get("reason") : "asked for by `tensortap stop`";
  const std::string id = write_request(*storage, request);
  if (arguments.has("wait")) return wait_for_answer(*storage, id, wait_s);
  cli::write_out("asked; the training stops at the border of one of its next steps\n");
  return kExitOk;
}

constexpr std::string_view kDoc =
    R"(The request is a file in the run's control/, which a training looks at twice a second. Its script gets the
exception StopTraining with the reason; the run is closed as after a training that came to its end, and rules that
found nothing have the status Stopped. Exit code: 0 asked (with --wait: obeyed), 1 the training has ended or does not
answer.

Examples:
  tensortap stop runs/digits
  tensortap stop runs/digits --reason "the loss is flat" --wait 30)";

}  // namespace

const CommandDescriptor& stop_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "reason",
                         .kind = ArgumentKind::kOption,
                         .value_name = "TEXT",
                         .doc = "what the script and the run are told"},
      ArgumentDescriptor{.name = "wait",
                         .kind = ArgumentKind::kOption,
                         .value_name = "SECONDS",
                         .doc = "wait until the training obeys, at most that long"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "stop",
      .summary = "Ask a running training to stop.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
