#include "base/error.h"

#include <system_error>

#include <fmt/core.h>

namespace tensortap {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kAlreadyExists:
      return "already_exists";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

void throw_io_error(std::string_view what, int error_number, std::string_view path) {
  // generic_category, because strerror is not thread-safe.
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}: {}", what, std::generic_category().message(error_number), path));
}

}  // namespace tensortap
