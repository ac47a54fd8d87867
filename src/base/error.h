// The one exception type of Tensortap. Thrown for "this cannot go on"; expected outcomes (end of
// file, half a frame, not found) are values, never exceptions. Caught at borders only: a hook call,
// a Python binding, main, the top of a thread, the rule engine. Immutable, so safe to share between
// threads.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tensortap {

enum class ErrorCode {
  kInvalidArgument,  // the caller's input is wrong: a parameter, a regex, a name
  kNotFound,         // a run, tensor, rule, file that is not there
  kAlreadyExists,    // a run where a fresh one was asked for
  kUnavailable,      // asked for something that this step or tensor does not have
  kCorrupt,          // bytes that fail their checksum or contradict the format
  kIo,               // the operating system or the network refused
  kUnsupported,      // a newer format version, a dtype this build does not know
  kInternal,         // a bug in Tensortap
};

std::string_view error_code_name(ErrorCode code);

// The message is one line a person understands, with the path or URL last.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error(kIo) with `what`, the text of `error_number` (errno) and the path last.
[[noreturn]] void throw_io_error(std::string_view what, int error_number, std::string_view path);

}  // namespace tensortap
