// Reads pieces of a file through one reused buffer, ahead of what was asked for, so that a walk
// over many small frames costs few system calls and no allocation. Used by trace/ only. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "storage/storage.h"

namespace tensortap::trace {

class WindowReader {
 public:
  static constexpr std::size_t kAheadBytes = std::size_t{256} << 10;

  // Starts on another file, or on the same after it has grown.
  void reset(std::shared_ptr<const ReadableFile> file);
  const ReadableFile* file() const { return file_.get(); }

  // The bytes [offset, offset + size), fewer only at the end of the file; valid until the next
  // call. Reads up to ahead_bytes when it has to read. The caller has checked `size` against the
  // size of the file.
  std::span<const std::byte> read(std::uint64_t offset, std::size_t size,
                                  std::size_t ahead_bytes = kAheadBytes);

 private:
  std::shared_ptr<const ReadableFile> file_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::uint64_t start_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tensortap::trace
