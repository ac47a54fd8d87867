// Tells a forked child from the process that made the object: what keeps a recorder inert in the
// workers that a data loader forks. Used by Recorder on every call, so it costs one load where the
// kernel can wipe a page in children (Linux 4.14), and one getpid() elsewhere. Thread-safe.
#pragma once

#include <sys/types.h>

namespace tensortap {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool is_forked_child() const noexcept;

 private:
  const pid_t owner_pid_;
  // Holds 1 in the owner, 0 in a child; null when the kernel cannot do that.
  volatile const unsigned char* mark_ = nullptr;
};

}  // namespace tensortap
