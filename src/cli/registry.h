// The subcommands; CMake generates the list from cli/commands/.
#pragma once

#include <vector>

#include "cli/command.h"

namespace tensortap {

const std::vector<const CommandDescriptor*>& builtin_commands();

}  // namespace tensortap
