// Runs in the memory of this process, for tests: "mem:name" is the same root for everybody who
// opens it, and lives as long as somebody holds it.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/error.h"
#include "storage/names.h"
#include "storage/registry.h"

namespace tensortap {
namespace {

// The bytes of one file; shared by the root and whoever has it open, as an inode is.
struct MemoryFile {
  mutable std::mutex mutex;
  std::vector<std::byte> bytes;

  std::size_t size() const {
    const std::lock_guard lock(mutex);
    return bytes.size();
  }
  void append(std::span<const std::byte> part) {
    const std::lock_guard lock(mutex);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
};

class MemoryWritableFile final : public WritableFile {
 public:
  explicit MemoryWritableFile(std::shared_ptr<MemoryFile> file) : file_(std::move(file)) {}
  void append(std::span<const std::span<const std::byte>> parts) override {
    for (const std::span<const std::byte> part : parts) file_->append(part);
  }
  void sync() override {}
  void close() override {}
  std::uint64_t size_bytes() const override { return file_->size(); }

 private:
  std::shared_ptr<MemoryFile> file_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  explicit MemoryReadableFile(std::shared_ptr<const MemoryFile> file) : file_(std::move(file)) {}
  std::size_t read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const override {
    const std::lock_guard lock(file_->mutex);
    if (offset_bytes >= file_->bytes.size()) return 0;
    const std::size_t count = std::min<std::size_t>(
        out.size(), file_->bytes.size() - static_cast<std::size_t>(offset_bytes));
    if (count > 0) std::memcpy(out.data(), file_->bytes.data() + offset_bytes, count);
    return count;
  }
  std::uint64_t size_bytes() const override { return file_->size(); }

 private:
  std::shared_ptr<const MemoryFile> file_;
};

class MemoryStorage final : public Storage {
 public:
  explicit MemoryStorage(std::string uri) : uri_(std::move(uri)) {}

  std::vector<StorageEntry> list(std::string_view prefix) const override {
    storage::check_prefix(prefix);
    const std::lock_guard lock(mutex_);
    std::vector<StorageEntry> entries;
    for (auto it = files_.lower_bound(prefix); it != files_.end(); ++it) {
      if (!it->first.starts_with(prefix)) break;
      entries.push_back({it->first, it->second->size()});
    }
    return entries;
  }
  std::unique_ptr<ReadableFile> open_for_read(std::string_view name) const override {
    std::shared_ptr<const MemoryFile> file = find(name);
    if (file == nullptr) return nullptr;
    return std::make_unique<MemoryReadableFile>(std::move(file));
  }
  std::optional<std::string> get(std::string_view name) const override {
    const std::shared_ptr<const MemoryFile> file = find(name);
    if (file == nullptr) return std::nullopt;
    const std::lock_guard lock(file->mutex);
    std::string content(file->bytes.size(), '\0');
    if (!content.empty()) std::memcpy(content.data(), file->bytes.data(), content.size());
    return content;
  }
  bool exists(std::string_view name) const override { return find(name) != nullptr; }

  std::unique_ptr<WritableFile> create(std::string_view name) override {
    storage::check_name(name);
    const std::lock_guard lock(mutex_);
    const auto [it, inserted] = files_.try_emplace(std::string(name));
    if (!inserted) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("the file exists already: {}/{}", uri_, name));
    }
    it->second = std::make_shared<MemoryFile>();
    return std::make_unique<MemoryWritableFile>(it->second);
  }
  void put(std::string_view name, std::string_view content) override {
    storage::check_name(name);
    const std::lock_guard lock(mutex_);
    files_.insert_or_assign(std::string(name), file_with(content));
  }
  bool put_if_absent(std::string_view name, std::string_view content) override {
    storage::check_name(name);
    const std::lock_guard lock(mutex_);
    return files_.try_emplace(std::string(name), file_with(content)).second;
  }
  void append_line(std::string_view name, std::string_view line) override {
    storage::check_name(name);
    const std::string whole = fmt::format("{}\n", line);
    const std::lock_guard lock(mutex_);
    std::shared_ptr<MemoryFile>& file = files_[std::string(name)];
    if (file == nullptr) file = std::make_shared<MemoryFile>();
    file->append(std::as_bytes(std::span(whole)));
  }
  void remove(std::string_view name) override {
    storage::check_name(name);
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(name);
    if (it != files_.end()) files_.erase(it);
  }
  const std::string& uri() const override { return uri_; }

 private:
  std::shared_ptr<const MemoryFile> find(std::string_view name) const {
    storage::check_name(name);
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(name);
    return it == files_.end() ? nullptr : it->second;
  }
  static std::shared_ptr<MemoryFile> file_with(std::string_view content) {
    auto file = std::make_shared<MemoryFile>();
    file->append(std::as_bytes(std::span(content)));
    return file;
  }

  const std::string uri_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<MemoryFile>, std::less<>> files_;
};

// The named roots of the process.
class MemoryRoots {
 public:
  std::shared_ptr<Storage> open(std::string_view uri) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Storage>& root = roots_[std::string(uri)];
    std::shared_ptr<Storage> storage = root.lock();
    if (storage == nullptr) {
      storage = std::make_shared<MemoryStorage>(std::string(uri));
      root = storage;
    }
    return storage;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Storage>, std::less<>> roots_;
};

std::shared_ptr<Storage> open_memory(std::string_view uri) {
  static MemoryRoots roots;
  return roots.open(uri);
}

}  // namespace

const StorageDescriptor& memory_storage() {
  static const StorageDescriptor descriptor = {
      "mem", "The memory of this process, for tests, as mem:name", &open_memory};
  return descriptor;
}

}  // namespace tensortap
