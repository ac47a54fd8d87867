// Passwords and addresses that must not stand in a configuration: read from the environment or from
// a file when an action is created, so that a missing one is noticed before the training begins.
// Thread-safe as long as nobody changes the environment.
#pragma once

#include <string>
#include <string_view>

#include "rules/parameters.h"

namespace tensortap {

// What `<name>_env` (a variable) or `<name>_file` (a file, trailing line breaks dropped) holds; ""
// when neither is given. Throws Error(kInvalidArgument) for both, (kNotFound) for one that is not
// there; the message names the variable or file, never the secret.
std::string read_secret(const Parameters& parameters, std::string_view name);

// Of a regular file of at most 64 KiB, with `~` for the home directory. Throws Error(kNotFound), or
// (kInvalidArgument) for a longer one.
std::string read_text_file(std::string path);

// "" when it is not set.
std::string environment(const char* name);

}  // namespace tensortap
