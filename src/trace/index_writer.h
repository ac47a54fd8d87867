// Seals a segment: turns its steps by ninety degrees, so that one statistic of one tensor is one
// contiguous column, and appends that with a directory and a trailer. Reads the steps back from the
// file (they are in the page cache) a few columns at a time, so that memory stays small however
// large the segment is. Used by trace/ only. Not thread-safe.
#pragma once

#include <memory>
#include <span>

#include "storage/storage.h"
#include "trace/segment_scan.h"

namespace tensortap::trace {

// `written` is the file that `readable` reads, standing at its end. Throws Error(kIo) when either
// fails, Error(kCorrupt) when the steps do not read back as they were written (nothing has been
// appended then).
void append_index(std::shared_ptr<const ReadableFile> readable, WritableFile& written,
                  std::span<const StepEntry> steps, const Dictionary& dictionary);

}  // namespace tensortap::trace
