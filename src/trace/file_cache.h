// Keeps the files that were used last open, so that a run of thousands of segments does not need as
// many descriptors. Used by trace/ only. Not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "storage/storage.h"

namespace tensortap::trace {

class FileCache {
 public:
  FileCache(std::shared_ptr<const Storage> storage, std::size_t open_limit)
      : storage_(std::move(storage)), open_limit_(open_limit) {}

  // Null when the file is gone.
  std::shared_ptr<const ReadableFile> open(const std::string& name);

 private:
  using Recent = std::list<std::pair<std::string, std::shared_ptr<const ReadableFile>>>;

  const std::shared_ptr<const Storage> storage_;
  const std::size_t open_limit_;
  Recent recent_;  // last used first
  std::unordered_map<std::string, Recent::iterator> by_name_;
};

}  // namespace tensortap::trace
