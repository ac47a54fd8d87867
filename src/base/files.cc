#include "base/files.h"

#include <unistd.h>

namespace tensortap {

FileDescriptor::~FileDescriptor() {
  // Not repeated after EINTR: Linux has released the descriptor by then, and another thread may own
  // it.
  if (fd_ >= 0) ::close(fd_);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  // What this one held is closed with the temporary; assigning to itself changes nothing.
  FileDescriptor taken(std::move(other));
  std::swap(fd_, taken.fd_);
  return *this;
}

}  // namespace tensortap
