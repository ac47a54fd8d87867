#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace tensortap::cli {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> has_interrupt = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

InterruptGuard::InterruptGuard()
    : previous_(std::signal(SIGINT, [](int) { has_interrupt = true; })) {}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, previous_); }

bool InterruptGuard::is_interrupted() { return has_interrupt; }

}  // namespace tensortap::cli
