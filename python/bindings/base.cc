// base/ for Python: errors become exceptions, log messages go to `logging`.
#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "base/error.h"
#include "base/log.h"
#include "bindings/bindings.h"

namespace tensortap::bindings {
namespace {

const char* exception_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgumentError";
    case ErrorCode::kNotFound:
      return "NotFoundError";
    case ErrorCode::kAlreadyExists:
      return "RunExistsError";
    case ErrorCode::kUnavailable:
      return "UnavailableError";
    case ErrorCode::kCorrupt:
      return "CorruptTraceError";
    case ErrorCode::kIo:
      return "TraceIOError";
    case ErrorCode::kUnsupported:
      return "UnsupportedError";
    case ErrorCode::kInternal:
      break;
  }
  return "TensortapError";
}

void translate_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      const nb::object type =
          nb::module_::import_("tensortap.exceptions").attr(exception_name(error.code()));
      PyErr_SetString(type.ptr(), error.what());
    } catch (nb::python_error& import_error) {
      import_error.restore();
    }
  }
}

// Messages on their way to Python. A message may come from any thread, with or without the GIL,
// holding any lock of the engine; so it is only put into a queue here, and the interpreter's main
// thread delivers it at its next bytecode.
class LogQueue {
 public:
  void push(LogLevel level, std::string_view message) {
    {
      const std::lock_guard lock(mutex_);
      if (messages_.size() >= kCapacity) {
        ++lost_;
      } else {
        messages_.emplace_back(level, message);
      }
    }
    if (!is_scheduled_.exchange(true) && Py_AddPendingCall(&LogQueue::deliver_pending, this) != 0) {
      is_scheduled_ = false;  // the interpreter's list is full; the next message tries again
    }
  }

  void set_callback(nb::object callback) { callback_ = std::move(callback); }

  void deliver() {
    is_scheduled_ = false;
    std::deque<std::pair<LogLevel, std::string>> messages;
    std::uint64_t lost = 0;
    {
      const std::lock_guard lock(mutex_);
      messages.swap(messages_);
      std::swap(lost, lost_);
    }
    for (const auto& [level, message] : messages) call(level, message);
    if (lost > 0) call(LogLevel::kWarning, std::to_string(lost) + " log messages were lost");
  }

 private:
  static constexpr std::size_t kCapacity = 1000;

  static int deliver_pending(void* queue) {
    static_cast<LogQueue*>(queue)->deliver();
    return 0;
  }

  void call(LogLevel level, const std::string& message) {
    if (!callback_.is_valid()) return;
    try {
      // The numbers of `logging`: DEBUG 10, INFO 20, WARNING 30, ERROR 40.
      const nb::object text = nb::steal(
          PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
      callback_((static_cast<int>(level) + 1) * 10, text);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("the log callback of tensortap");
    }
  }

  std::mutex mutex_;
  std::deque<std::pair<LogLevel, std::string>> messages_;
  std::uint64_t lost_ = 0;
  std::atomic<bool> is_scheduled_ = false;
  nb::object callback_;
};

// Never destroyed: the writer thread may still log while the process exits.
LogQueue& log_queue() {
  static LogQueue* queue = new LogQueue;
  return *queue;
}

void set_log_callback(std::optional<nb::callable> callback) {
  if (callback) {
    log_queue().set_callback(*callback);
    set_log_sink(
        [](LogLevel level, std::string_view message) { log_queue().push(level, message); });
  } else {
    // Back to stderr before the rest is delivered, so that nothing is queued behind it.
    set_log_sink({});
    log_queue().deliver();
    log_queue().set_callback({});
  }
}

}  // namespace

void bind_base(nb::module_& module) {
  nb::register_exception_translator(translate_error);
  module.def(
      "set_log_callback", &set_log_callback, nb::arg("callback").none(),
      nb::sig("def set_log_callback(callback: collections.abc.Callable[[int, str], None] | None) "
              "-> None"),
      "callback(level of `logging`, message), on the main thread soon after. None = stderr.");
  module.def(
      "log",
      [](int level, const std::string& message) {
        log(static_cast<LogLevel>(std::clamp(level / 10 - 1, 0, 3)), message);
      },
      nb::arg("level"), nb::arg("message"),
      "Say something as the engine does; the level is one of `logging`.");
  // Once the interpreter goes down, messages must not look for it.
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] { set_log_callback(std::nullopt); }));
}

}  // namespace tensortap::bindings
