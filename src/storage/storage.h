// Where the files of a run live: a local directory now, object stores later. A Storage is one root;
// names are relative, '/'-separated, never starting with '/' and never holding "..". It knows
// nothing of runs. Used by trace/ and everything above. All methods are thread-safe; files are not.
// Throws Error(kIo) with the path last when the system refuses; absence is a value (null, nullopt,
// empty list).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

// An append-only file being written. What append() returned for is visible to readers (not yet
// durable) unless the backend says otherwise; sync() makes it durable. The destructor closes
// without reporting; call close() to see errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes the parts one after the other in as few system calls as possible. On an Error, a prefix
  // may have been written: size_bytes() says how much.
  virtual void append(std::span<const std::span<const std::byte>> parts) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
  virtual std::uint64_t size_bytes() const = 0;
};

// A file open for reading; it may be growing. Reads are positioned, so one object serves many
// threads.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // Reads up to out.size() bytes; fewer only at the current end of the file. Returns the count.
  virtual std::size_t read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const = 0;
  virtual std::uint64_t size_bytes() const = 0;  // now
};

struct StorageEntry {
  std::string name;  // relative to the root
  std::uint64_t size_bytes = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;

  // Files whose name starts with `prefix` (recursively), sorted by name. Temporary files are left
  // out.
  virtual std::vector<StorageEntry> list(std::string_view prefix) const = 0;
  // Null when absent.
  virtual std::unique_ptr<ReadableFile> open_for_read(std::string_view name) const = 0;
  // The whole of a small file.
  virtual std::optional<std::string> get(std::string_view name) const = 0;
  virtual bool exists(std::string_view name) const = 0;

  // Parents are created. Throws Error(kAlreadyExists) when the name is taken: of two creators
  // exactly one wins.
  virtual std::unique_ptr<WritableFile> create(std::string_view name) = 0;
  // Whole file at once, atomically: readers see the old or the new content. put_if_absent: false
  // when the name is taken.
  virtual void put(std::string_view name, std::string_view content) = 0;
  virtual bool put_if_absent(std::string_view name, std::string_view content) = 0;
  // Appends one line to a small text file with a single write (for .jsonl files with one writer).
  virtual void append_line(std::string_view name, std::string_view line) = 0;
  virtual void remove(std::string_view name) = 0;  // absent is fine
  virtual const std::string& uri() const = 0;
};

// Opens the root that `uri` names: a path (with "~"), "file:///…", or another registered scheme.
// Nothing is created until something is written. Throws Error(kInvalidArgument) for an unknown
// scheme, listing the known ones.
std::shared_ptr<Storage> open_storage(std::string_view uri);

}  // namespace tensortap
