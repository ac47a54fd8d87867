// Where Tensortap says something. A library in somebody's training writes nothing unasked: until a
// sink is set, warnings and errors go to stderr and the rest nowhere; under Python the binding
// routes everything to the `logging` logger "tensortap". Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tensortap {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink of the process; an empty function restores the default.
void set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view message) noexcept;

}  // namespace tensortap
