#include "trace/window_reader.h"

#include <algorithm>
#include <utility>

namespace tensortap::trace {

void WindowReader::reset(std::shared_ptr<const ReadableFile> file) {
  file_ = std::move(file);
  size_ = 0;
}

std::span<const std::byte> WindowReader::read(std::uint64_t offset, std::size_t size,
                                              std::size_t ahead_bytes) {
  const bool inside = offset >= start_ && offset - start_ <= size_;
  const std::size_t skip = inside ? static_cast<std::size_t>(offset - start_) : 0;
  if (inside && size <= size_ - skip) return {memory_.get() + skip, size};
  const std::size_t wanted = std::max(size, ahead_bytes);
  if (capacity_ < wanted) {
    memory_.reset(new std::byte[wanted]);
    capacity_ = wanted;
  }
  size_ = 0;
  start_ = offset;
  size_ = file_->read_at(offset, {memory_.get(), wanted});
  return {memory_.get(), std::min(size, size_)};
}

}  // namespace tensortap::trace
