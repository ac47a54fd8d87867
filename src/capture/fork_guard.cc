#include "capture/fork_guard.h"

#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>

namespace tensortap {
namespace {

constexpr std::size_t kMarkBytes = 4096;

}  // namespace

ForkGuard::ForkGuard() : owner_pid_(::getpid()) {
  void* page =
      ::mmap(nullptr, kMarkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kMarkBytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kMarkBytes);
    return;
  }
  auto* mark = static_cast<unsigned char*>(page);
  *mark = 1;
  mark_ = mark;
}

ForkGuard::~ForkGuard() {
  if (mark_ != nullptr) ::munmap(const_cast<unsigned char*>(mark_), kMarkBytes);
}

bool ForkGuard::is_forked_child() const noexcept {
  return mark_ != nullptr ? *mark_ == 0 : owner_pid_ != ::getpid();
}

}  // namespace tensortap
