// A Storage that fails on command, for tests of whoever writes through one: a disk that fills up in
// the middle of a write, that is slow, that comes back. Wraps another Storage; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "storage/storage.h"

namespace tensortap {

// Shared by the test and the wrapper; may be changed at any time.
struct StorageFaults {
  // Bytes that can still be appended to files; the write that crosses the limit is cut there and
  // throws.
  std::atomic<std::int64_t> room_bytes{INT64_MAX};
  std::atomic<bool> refuse_create{false};
  std::atomic<bool> refuse_put{false};  // of whole small files
  std::atomic<std::int64_t> append_delay_ns{0};
  std::atomic<std::uint64_t> failed_calls{0};  // counted by the wrapper
};

std::shared_ptr<Storage> make_faulty_storage(std::shared_ptr<Storage> inner,
                                             std::shared_ptr<StorageFaults> faults);

}  // namespace tensortap
