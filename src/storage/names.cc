#include "storage/names.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tensortap::storage {
namespace {

bool is_safe_part(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && !part.starts_with(kTemporaryPrefix);
}

bool is_safe_name(std::string_view name) {
  if (name.find('\0') != std::string_view::npos) return false;
  while (true) {
    const std::size_t slash = name.find('/');
    if (!is_safe_part(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

void check_name(std::string_view name) {
  if (is_safe_name(name)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("not a name inside a run (it must be relative, without '..'): {}", name));
}

void check_prefix(std::string_view prefix) {
  // Whatever follows can only extend the last part, so an unfinished last part is judged as if
  // finished.
  if (prefix.empty()) return;
  const std::string_view whole =
      prefix.ends_with('/') ? prefix.substr(0, prefix.size() - 1) : prefix;
  check_name(whole);
}

}  // namespace tensortap::storage
