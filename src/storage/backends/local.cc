// Runs in a directory of the local file system (or whatever is mounted there). Nothing is buffered
// in user space: what append() returned for is in the page cache, where every other process sees
// it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "storage/names.h"
#include "storage/registry.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFileMode = 0666;  // the user's umask decides
constexpr std::size_t kPartsPerWrite = 512;

int open_retrying(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

void make_parents(const std::string& path) {
  // create_directories tolerates others who make the same directories at the same time.
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) throw_io_error("cannot create the directory of", error.value(), path);
}

int open_making_parents(const std::string& path, int flags) {
  int fd = open_retrying(path, flags);
  if (fd >= 0 || errno != ENOENT) return fd;
  make_parents(path);
  return open_retrying(path, flags);
}

class LocalWritableFile final : public WritableFile {
 public:
  LocalWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~LocalWritableFile() override {
    if (fd_ >= 0) (void)::close(fd_);
  }
  LocalWritableFile(const LocalWritableFile&) = delete;
  LocalWritableFile& operator=(const LocalWritableFile&) = delete;

  void append(std::span<const std::span<const std::byte>> parts) override {
    std::array<iovec, kPartsPerWrite> vectors;
    while (!parts.empty()) {
      const std::size_t count = std::min(parts.size(), vectors.size());
      for (std::size_t i = 0; i < count; ++i) {
        vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
      }
      write_all(std::span(vectors.data(), count));
      parts = parts.subspan(count);
    }
  }
  void sync() override {
    if (::fdatasync(fd_) != 0) throw_io_error("cannot sync", errno, path_);
  }
  void close() override {
    if (fd_ < 0) return;
    // After a failed close the descriptor is gone on Linux; a second close could hit somebody
    // else's file.
    if (::close(std::exchange(fd_, -1)) != 0) throw_io_error("cannot close", errno, path_);
  }
  std::uint64_t size_bytes() const override { return size_bytes_.load(std::memory_order_relaxed); }

 private:
  // writev may stop anywhere: go on from there until everything is in the file.
  void write_all(std::span<iovec> vectors) {
    while (true) {
      while (!vectors.empty() && vectors.front().iov_len == 0) vectors = vectors.subspan(1);
      if (vectors.empty()) return;
      ssize_t written = ::writev(fd_, vectors.data(), static_cast<int>(vectors.size()));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw_io_error("cannot write", errno, path_);
      if (written == 0) throw_io_error("cannot write", EIO, path_);
      size_bytes_.fetch_add(static_cast<std::uint64_t>(written), std::memory_order_relaxed);
      auto left = static_cast<std::size_t>(written);
      while (left > 0) {
        const std::size_t taken = std::min(left, vectors.front().iov_len);
        vectors.front().iov_base = static_cast<std::byte*>(vectors.front().iov_base) + taken;
        vectors.front().iov_len -= taken;
        left -= taken;
        if (vectors.front().iov_len == 0) vectors = vectors.subspan(1);
      }
    }
  }

  int fd_;
  std::string path_;
  std::atomic<std::uint64_t> size_bytes_{0};
};

class LocalReadableFile final : public ReadableFile {
 public:
  LocalReadableFile(FileDescriptor fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  std::size_t read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = ::pread(fd_.get(), out.data() + done, out.size() - done,
                                    static_cast<off_t>(offset_bytes + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw_io_error("cannot read", errno, path_);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }
  std::uint64_t size_bytes() const override {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw_io_error("cannot stat", errno, path_);
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  FileDescriptor fd_;
  std::string path_;
};

class LocalStorage final : public Storage {
 public:
  explicit LocalStorage(std::string root) : root_(std::move(root)) {}

  std::vector<StorageEntry> list(std::string_view prefix) const override {
    storage::check_prefix(prefix);
    const std::size_t slash = prefix.rfind('/');
    std::vector<StorageEntry> entries;
    std::vector<std::string> folders = {
        slash == std::string_view::npos ? "" : std::string(prefix.substr(0, slash + 1))};
    while (!folders.empty()) {
      const std::string folder = std::move(folders.back());
      folders.pop_back();
      list_folder(folder, prefix, entries, folders);
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  std::unique_ptr<ReadableFile> open_for_read(std::string_view name) const override {
    const std::string path = path_of(name);
    FileDescriptor fd(open_retrying(path, O_RDONLY));
    if (!fd.is_open()) {
      if (errno == ENOENT || errno == ENOTDIR) return nullptr;
      throw_io_error("cannot open", errno, path);
    }
    return std::make_unique<LocalReadableFile>(std::move(fd), path);
  }

  std::optional<std::string> get(std::string_view name) const override {
    const std::unique_ptr<ReadableFile> file = open_for_read(name);
    if (file == nullptr) return std::nullopt;
    std::string content(file->size_bytes(), '\0');
    content.resize(file->read_at(0, std::as_writable_bytes(std::span(content))));
    return content;
  }

  bool exists(std::string_view name) const override {
    struct stat status {};
    return ::stat(path_of(name).c_str(), &status) == 0 && S_ISREG(status.st_mode);
  }

  std::unique_ptr<WritableFile> create(std::string_view name) override {
    const std::string path = path_of(name);
    const int fd = open_making_parents(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0 && errno == EEXIST) {
      throw Error(ErrorCode::kAlreadyExists, fmt::format("the file exists already: {}", path));
    }
    if (fd < 0) throw_io_error("cannot create", errno, path);
    return std::make_unique<LocalWritableFile>(fd, path);
  }

  void put(std::string_view name, std::string_view content) override {
    const std::string path = path_of(name);
    const std::string temporary = write_temporary(path, content);
    if (::rename(temporary.c_str(), path.c_str()) == 0) return;
    const int error = errno;
    (void)::unlink(temporary.c_str());
    throw_io_error("cannot write", error, path);
  }

  bool put_if_absent(std::string_view name, std::string_view content) override {
    const std::string path = path_of(name);
    const std::string temporary = write_temporary(path, content);
    int result = ::link(temporary.c_str(), path.c_str());
    int error = result == 0 ? 0 : errno;
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
      // File systems without hard links.
      result = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
      error = result == 0 ? 0 : errno;
    }
    (void)::unlink(temporary.c_str());
    if (error == 0) return true;
    if (error == EEXIST) return false;
    throw_io_error("cannot write", error, path);
  }

  void append_line(std::string_view name, std::string_view line) override {
    const std::string path = path_of(name);
    const int fd = open_making_parents(path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0) throw_io_error("cannot open", errno, path);
    LocalWritableFile file(fd, path);
    const std::string whole = fmt::format("{}\n", line);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(whole));
    file.append(std::span(&bytes, 1));
    file.close();
  }

  void remove(std::string_view name) override {
    const std::string path = path_of(name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
      throw_io_error("cannot remove", errno, path);
    }
  }

  const std::string& uri() const override { return root_; }

 private:
  std::string path_of(std::string_view name) const {
    storage::check_name(name);
    return fmt::format("{}/{}", root_, name);
  }

  // Appends the files of one folder ("" or "a/b/") to `entries` and its folders to `folders`.
  void list_folder(const std::string& folder, std::string_view prefix,
                   std::vector<StorageEntry>& entries, std::vector<std::string>& folders) const {
    const std::string path = fmt::format("{}/{}", root_, folder);
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) {
      if (errno == ENOENT || errno == ENOTDIR) return;
      throw_io_error("cannot list", errno, path);
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> closer(directory, &::closedir);
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view base = entry->d_name;
      if (base == "." || base == ".." || base.starts_with(storage::kTemporaryPrefix)) continue;
      std::string name = folder + std::string(base);
      struct stat status {};
      if (!name.starts_with(prefix.substr(0, std::min(prefix.size(), name.size())))) continue;
      // Whatever vanished meanwhile is not there. Linked folders could loop, so they are not
      // entered.
      if (::fstatat(::dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        folders.push_back(name + "/");
        continue;
      }
      if (S_ISLNK(status.st_mode) &&
          ::fstatat(::dirfd(directory), entry->d_name, &status, 0) != 0) {
        continue;
      }
      if (!S_ISREG(status.st_mode) || !name.starts_with(prefix)) continue;
      entries.push_back({std::move(name), static_cast<std::uint64_t>(status.st_size)});
    }
  }

  // A complete file beside `path`, under a name that nobody lists.
  std::string write_temporary(const std::string& path, std::string_view content) {
    const std::size_t slash = path.rfind('/');
    while (true) {
      std::string temporary =
          fmt::format("{}/{}{}-{}", path.substr(0, slash), storage::kTemporaryPrefix, ::getpid(),
                      temporary_count_.fetch_add(1, std::memory_order_relaxed));
      const int fd = open_making_parents(temporary, O_WRONLY | O_CREAT | O_EXCL);
      if (fd < 0 && errno == EEXIST) continue;
      if (fd < 0) throw_io_error("cannot create a file beside", errno, path);
      try {
        LocalWritableFile file(fd, path);
        const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
        file.append(std::span(&bytes, 1));
        file.close();
      } catch (...) {
        (void)::unlink(temporary.c_str());
        throw;
      }
      return temporary;
    }
  }

  const std::string root_;  // absolute, without a trailing '/'
  std::atomic<std::uint64_t> temporary_count_{0};
};

// Undoes %41 and the like in a file: URI; anything else stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() &&
        std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string path_from_uri(std::string_view uri) {
  std::string path(uri);
  if (uri.starts_with("file:")) {
    uri.remove_prefix(5);
    if (uri.starts_with("//")) uri.remove_prefix(2);
    if (uri.starts_with("localhost/")) uri.remove_prefix(9);
    path = percent_decoded(uri);
  }
  if (path == "~" || path.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'~' cannot be expanded: HOME is not set: {}", path));
    }
    path = home + path.substr(1);
  }
  return path;
}

std::shared_ptr<Storage> open_local(std::string_view uri) {
  const std::string path = path_from_uri(uri);
  std::error_code error;
  const fs::path absolute = fs::absolute(path.empty() ? "." : path, error).lexically_normal();
  if (error) throw_io_error("cannot resolve", error.value(), path);
  std::string root = absolute.string();
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return std::make_shared<LocalStorage>(std::move(root));
}

}  // namespace

const StorageDescriptor& local_storage() {
  static const StorageDescriptor descriptor = {
      "file", "A directory of the local file system, as a path or file:///path", &open_local};
  return descriptor;
}

}  // namespace tensortap
