// Ownership of a POSIX file descriptor. Used by storage/backends and by programs. Not thread-safe.
// It opens nothing and reports nothing: whoever must know that close() failed calls fsync first.
#pragma once

#include <utility>

namespace tensortap {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace tensortap
