#include "base/log.h"

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

namespace tensortap {
namespace {

struct SinkState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};

// Never destroyed: a thread may still log while the process exits, and a sink that calls into
// Python must not be torn down after the interpreter.
SinkState& sink_state() {
  alignas(SinkState) static std::array<std::byte, sizeof(SinkState)> storage;
  static SinkState& state = *::new (static_cast<void*>(storage.data())) SinkState;
  return state;
}

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

void write_to_stderr(LogLevel level, std::string_view message) {
  if (level < LogLevel::kWarning) return;
  // One write, so that lines of several threads and processes do not mix.
  const std::string line = fmt::format("tensortap: {}: {}\n", level_name(level), message);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void set_log_sink(LogSink sink) {
  auto fresh = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  SinkState& state = sink_state();
  // The old sink ends outside the lock, since its destructor may run foreign code.
  const std::lock_guard lock(state.mutex);
  state.sink.swap(fresh);
}

void log(LogLevel level, std::string_view message) noexcept {
  try {
    std::shared_ptr<const LogSink> sink;
    {
      SinkState& state = sink_state();
      const std::lock_guard lock(state.mutex);
      sink = state.sink;
    }
    if (sink) {
      (*sink)(level, message);
    } else {
      write_to_stderr(level, message);
    }
  } catch (...) {
    // Nobody is left to tell.
  }
}

}  // namespace tensortap
