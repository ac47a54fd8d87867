// Runs a program of the user's, which gets the finding on its standard input.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/core.h>
#include <spawn.h>

#include "actions/action.h"
#include "actions/delivery.h"
#include "actions/message.h"
#include "actions/registry.h"
#include "actions/spec.h"
#include "base/files.h"

extern char** environ;

namespace tensortap {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval(10);

// A file without a name: a pipe could fill up, or break under a program that does not read.
FileDescriptor input_of(const std::string& text) {
  FileDescriptor file(memfd_create("finding", MFD_CLOEXEC));
  if (!file.is_open()) throw_io_error("no room for a program's input", errno, "memfd");
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("no room for a program's input", errno, "memfd");
    done += static_cast<std::size_t>(count);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::vector<std::string> environment_of(const Finding& finding, std::string_view run) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("TENSORTAP_FINDING_")) variables.emplace_back(*entry);
  }
  const auto add = [&](std::string_view name, std::string_view value) {
    variables.push_back(fmt::format("TENSORTAP_FINDING_{}={}", name, one_line(value)));
  };
  add("RUN", run);
  add("RULE", finding.rule);
  add("TENSOR", finding.tensor);
  add("WORKER", finding.worker);
  add("STEP", std::to_string(finding.step));
  add("MODE", mode_name(finding.mode));
  add("STATISTIC", finding.statistic);
  add("OBSERVED", fmt::format("{}", finding.observed));
  add("THRESHOLD", fmt::format("{}", finding.threshold));
  add("SEVERITY", severity_name(finding.severity));
  add("MESSAGE", finding.message);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// How the child starts: in a process group of its own, deaf to nothing, its output thrown away.
class SpawnSetup {
 public:
  explicit SpawnSetup(int input) {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t set;
    sigemptyset(&set);
    posix_spawnattr_setsigmask(&attributes, &set);
    sigfillset(&set);
    posix_spawnattr_setsigdefault(&attributes, &set);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t files{};
};

class Command : public Action {
 public:
  explicit Command(const Parameters& parameters)
      : argv_(list_of(parameters.get_string("argv"))), timeout_ms_(timeout_ms(parameters)) {
    if (argv_.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "action command needs argv=[PROGRAM,ARGUMENT,…]");
    }
  }

  ActionReply run(const Finding& finding, ActionContext& context) override {
    const pid_t child = start(finding, context.run);
    const int status = wait_for(child, context.is_cancelled);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {fmt::format("{} ran", argv_[0])};
    const std::string how = WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status));
    throw Error(ErrorCode::kIo, fmt::format("{} failed with {}", argv_[0], how));
  }

 private:
  pid_t start(const Finding& finding, const std::string& run) {
    const FileDescriptor input = input_of(finding_document(finding, run) + "\n");
    const SpawnSetup setup(input.get());
    std::vector<std::string> words = argv_;
    std::vector<std::string> variables = environment_of(finding, run);
    pid_t child = -1;
    const int error = posix_spawnp(&child, argv_[0].c_str(), &setup.files, &setup.attributes,
                                   pointers(words).data(), pointers(variables).data());
    if (error == 0) return child;
    throw Error(ErrorCode::kIo,
                fmt::format("the program does not start ({}): {}", std::strerror(error), argv_[0]));
  }

  // Its exit status. Kills it, with what it started, when it takes too long or nobody waits.
  int wait_for(pid_t child, const std::atomic<bool>* is_cancelled) const {
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms_);
    int status = 0;
    while (true) {
      const pid_t ended = waitpid(child, &status, WNOHANG);
      if (ended == child) return status;
      // Somebody else collects the children of this process: how it ended is not to be known.
      if (ended < 0 && errno != EINTR) return 0;
      const bool is_given_up = is_cancelled != nullptr && *is_cancelled;
      if (is_given_up || Clock::now() >= deadline) {
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
        throw Error(ErrorCode::kIo,
                    fmt::format("{} was killed: {}", argv_[0],
                                is_given_up ? "the training ended"
                                            : fmt::format("it took longer than {} s",
                                                          static_cast<double>(timeout_ms_) / 1e3)));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  std::vector<std::string> argv_;
  std::int64_t timeout_ms_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<Command>(parameters);
}

}  // namespace

const ActionDescriptor& command_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{.name = "argv",
                          .type = ParameterType::kList,
                          .doc =
                              "the program and its arguments: [notify-send,training] or, as JSON, "
                              "[\"sh\", \"-c\", \"…\"]; no shell reads it"},
      kTimeoutParameter,
  };
  static const ActionDescriptor descriptor{
      .name = "command",
      .summary = "Runs a program with the finding on its standard input.",
      .doc =
          "The program gets `{\"run\": …, \"finding\": {…}}` on its standard input and the members "
          "in variables: TENSORTAP_FINDING_RULE, _TENSOR, _WORKER, _STEP, _MODE, _STATISTIC, "
          "_OBSERVED, _THRESHOLD, _SEVERITY, _MESSAGE and _RUN. No shell is involved, so that "
          "nothing in a tensor's name can become a command. Its output is thrown away. A program "
          "that takes longer than `timeout` is killed, with what it started; one that fails is not "
          "run again. Of the arguments only the first is stored.",
      .is_slow = true,
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
