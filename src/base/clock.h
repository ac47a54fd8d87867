// Time as the rest of the code sees it. Thread-safe.
#pragma once

#include <cstdint>

namespace tensortap {

std::int64_t wall_time_ns();       // since the Unix epoch, UTC
std::int64_t monotonic_time_ns();  // only differences mean anything

}  // namespace tensortap
