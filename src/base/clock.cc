#include "base/clock.h"

#include <chrono>

namespace tensortap {
namespace {

template <class Clock>
std::int64_t now_ns() {
  const auto since_epoch = Clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

}  // namespace

std::int64_t wall_time_ns() { return now_ns<std::chrono::system_clock>(); }

std::int64_t monotonic_time_ns() { return now_ns<std::chrono::steady_clock>(); }

}  // namespace tensortap
