// Ctrl-C as an answer to "shall I go on?", for commands that follow a run. Used by cli/commands.
// One guard at a time.
#pragma once

namespace tensortap::cli {

// From its construction on Ctrl-C ends nothing but is remembered.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool is_interrupted();

 private:
  void (*previous_)(int);
};

}  // namespace tensortap::cli
