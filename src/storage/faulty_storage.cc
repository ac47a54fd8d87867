#include "storage/faulty_storage.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tensortap {
namespace {

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(std::unique_ptr<WritableFile> inner, std::shared_ptr<StorageFaults> faults,
                     std::string name)
      : inner_(std::move(inner)), faults_(std::move(faults)), name_(std::move(name)) {}

  void append(std::span<const std::span<const std::byte>> parts) override {
    const std::int64_t delay_ns = faults_->append_delay_ns.load();
    if (delay_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
    for (const std::span<const std::byte> part : parts) append_part(part);
  }
  void sync() override { inner_->sync(); }
  void close() override { inner_->close(); }
  std::uint64_t size_bytes() const override { return inner_->size_bytes(); }

 private:
  void append_part(std::span<const std::byte> part) {
    const auto wanted = static_cast<std::int64_t>(part.size());
    const std::int64_t room = faults_->room_bytes.fetch_sub(wanted);
    if (room >= wanted) {
      inner_->append(std::span(&part, 1));
      return;
    }
    const std::int64_t fitting = std::max<std::int64_t>(room, 0);
    faults_->room_bytes.fetch_add(wanted - fitting);
    const auto head = part.first(static_cast<std::size_t>(fitting));
    inner_->append(std::span(&head, 1));
    faults_->failed_calls.fetch_add(1);
    throw_io_error("cannot write", ENOSPC, name_);
  }

  std::unique_ptr<WritableFile> inner_;
  std::shared_ptr<StorageFaults> faults_;
  std::string name_;
};

class FaultyStorage final : public Storage {
 public:
  FaultyStorage(std::shared_ptr<Storage> inner, std::shared_ptr<StorageFaults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  std::vector<StorageEntry> list(std::string_view prefix) const override {
    return inner_->list(prefix);
  }
  std::unique_ptr<ReadableFile> open_for_read(std::string_view name) const override {
    return inner_->open_for_read(name);
  }
  std::optional<std::string> get(std::string_view name) const override { return inner_->get(name); }
  bool exists(std::string_view name) const override { return inner_->exists(name); }
  std::unique_ptr<WritableFile> create(std::string_view name) override {
    refuse_if(faults_->refuse_create, "cannot create", name);
    return std::make_unique<FaultyWritableFile>(inner_->create(name), faults_, std::string(name));
  }
  void put(std::string_view name, std::string_view content) override {
    refuse_if(faults_->refuse_put, "cannot write", name);
    inner_->put(name, content);
  }
  bool put_if_absent(std::string_view name, std::string_view content) override {
    refuse_if(faults_->refuse_put, "cannot write", name);
    return inner_->put_if_absent(name, content);
  }
  void append_line(std::string_view name, std::string_view line) override {
    inner_->append_line(name, line);
  }
  void remove(std::string_view name) override { inner_->remove(name); }
  const std::string& uri() const override { return inner_->uri(); }

 private:
  void refuse_if(const std::atomic<bool>& refuses, std::string_view what, std::string_view name) {
    if (!refuses.load()) return;
    faults_->failed_calls.fetch_add(1);
    throw_io_error(what, ENOSPC, name);
  }

  std::shared_ptr<Storage> inner_;
  std::shared_ptr<StorageFaults> faults_;
};

}  // namespace

std::shared_ptr<Storage> make_faulty_storage(std::shared_ptr<Storage> inner,
                                             std::shared_ptr<StorageFaults> faults) {
  return std::make_shared<FaultyStorage>(std::move(inner), std::move(faults));
}

}  // namespace tensortap
