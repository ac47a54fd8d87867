// Which names a Storage accepts. Shared by the backends. Pure functions, thread-safe.
#pragma once

#include <string_view>

namespace tensortap::storage {

// Throws Error(kInvalidArgument) unless `name` stays inside the root: not empty, no leading or
// trailing '/', no empty, "." or ".." part, no NUL, and no part that looks like a temporary file.
void check_name(std::string_view name);
// The same for the start of a name, which may be empty or end anywhere.
void check_prefix(std::string_view prefix);

// Names of files that are not there yet start with this; list() leaves them out.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

}  // namespace tensortap::storage
