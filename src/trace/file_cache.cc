#include "trace/file_cache.h"

namespace tensortap::trace {

std::shared_ptr<const ReadableFile> FileCache::open(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }
  std::shared_ptr<const ReadableFile> file = storage_->open_for_read(name);
  if (file == nullptr) return nullptr;
  recent_.emplace_front(name, file);
  by_name_.emplace(name, recent_.begin());
  if (recent_.size() > open_limit_) {
    by_name_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return file;
}

}  // namespace tensortap::trace
