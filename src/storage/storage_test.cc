// The contract of Storage, run over every backend that can be tested without a service.
#include "storage/storage.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "storage/faulty_storage.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void append(WritableFile& file, std::string_view text) {
  const std::span<const std::byte> part = bytes_of(text);
  file.append(std::span(&part, 1));
}

std::vector<std::string> names(const std::vector<StorageEntry>& entries) {
  std::vector<std::string> out;
  for (const StorageEntry& entry : entries) out.push_back(entry.name);
  return out;
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tensortap-storage-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class StorageTest : public ::testing::TestWithParam<std::string> {
 protected:
  StorageTest() {
    uri_ = GetParam() == "local" ? (folder_.path() / "run").string()
                                 : "mem:" + folder_.path().string();
    storage_ = open_storage(uri_);
  }
  TemporaryFolder folder_;
  std::string uri_;
  std::shared_ptr<Storage> storage_;
};

TEST_P(StorageTest, AppendedBytesAreVisibleAtOnceAndReadFromAnyPosition) {
  const auto file = storage_->create("trace/worker_0/a.ttap");
  const std::array parts = {bytes_of("hello "), bytes_of(""), bytes_of("world")};
  file->append(parts);
  const auto reader = storage_->open_for_read("trace/worker_0/a.ttap");
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->size_bytes(), 11u);
  append(*file, "!");
  EXPECT_EQ(file->size_bytes(), 12u);
  std::array<std::byte, 20> buffer{};
  EXPECT_EQ(reader->read_at(6, buffer), 6u);
  EXPECT_EQ(std::memcmp(buffer.data(), "world!", 6), 0);
  EXPECT_EQ(reader->read_at(12, buffer), 0u);
  EXPECT_EQ(reader->read_at(1'000'000, buffer), 0u);
  file->close();
}

TEST_P(StorageTest, ManySmallPartsArriveInOrder) {
  std::string expected;
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.push_back(std::to_string(i));
  std::vector<std::span<const std::byte>> parts;
  for (const std::string& text : texts) {
    parts.push_back(bytes_of(text));
    expected += text;
  }
  storage_->create("many")->append(parts);
  EXPECT_EQ(storage_->get("many"), expected);
}

TEST_P(StorageTest, OfManyCreatorsExactlyOneWins) {
  std::atomic<int> wins{0};
  std::atomic<int> losses{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      try {
        storage_->create("deep/er/file");
        ++wins;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kAlreadyExists) ++losses;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wins, 1);
  EXPECT_EQ(losses, 7);
}

TEST_P(StorageTest, PutIfAbsentIsWonByExactlyOneAndNeverHalfVisible) {
  const std::string content(100'000, 'x');
  std::atomic<int> wins{0};
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      const auto seen = storage_->get("claim");
      if (seen) {
        EXPECT_EQ(seen->size(), content.size());
      }
    }
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { wins += storage_->put_if_absent("claim", content) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  watcher.join();
  EXPECT_EQ(wins, 1);
  EXPECT_THAT(names(storage_->list("")), ElementsAre("claim"));
}

TEST_P(StorageTest, PutReplacesTheWholeContent) {
  storage_->put("a/run.json", "a long first version");
  storage_->put("a/run.json", "short");
  EXPECT_EQ(storage_->get("a/run.json"), "short");
  EXPECT_THAT(names(storage_->list("")), ElementsAre("a/run.json"));
}

TEST_P(StorageTest, ListIsRecursiveSortedAndGoesByPrefixNotByFolder) {
  for (const char* name :
       {"trace/w_1/0.ttap", "trace/w_0/1.ttap", "trace/w_0/0.ttap", "traces", "end/x"}) {
    storage_->put(name, name);
  }
  EXPECT_THAT(names(storage_->list("trace/")),
              ElementsAre("trace/w_0/0.ttap", "trace/w_0/1.ttap", "trace/w_1/0.ttap"));
  EXPECT_THAT(names(storage_->list("trace/w_0")),
              ElementsAre("trace/w_0/0.ttap", "trace/w_0/1.ttap"));
  EXPECT_THAT(names(storage_->list("tr")),
              ElementsAre("trace/w_0/0.ttap", "trace/w_0/1.ttap", "trace/w_1/0.ttap", "traces"));
  EXPECT_THAT(names(storage_->list("nothing/here")), IsEmpty());
  EXPECT_EQ(storage_->list("end/").at(0).size_bytes, 5u);
}

TEST_P(StorageTest, AbsenceIsAValue) {
  EXPECT_THAT(storage_->list(""), IsEmpty());
  EXPECT_EQ(storage_->open_for_read("a/b"), nullptr);
  EXPECT_EQ(storage_->get("a/b"), std::nullopt);
  EXPECT_FALSE(storage_->exists("a/b"));
  EXPECT_NO_THROW(storage_->remove("a/b"));
  storage_->put("a/b", "");
  EXPECT_TRUE(storage_->exists("a/b"));
  EXPECT_EQ(storage_->get("a/b"), "");
  storage_->remove("a/b");
  EXPECT_FALSE(storage_->exists("a/b"));
}

TEST_P(StorageTest, LinesAreAppended) {
  storage_->append_line("rules/findings.jsonl", "{\"a\":1}");
  storage_->append_line("rules/findings.jsonl", "{\"a\":2}");
  EXPECT_EQ(storage_->get("rules/findings.jsonl"), "{\"a\":1}\n{\"a\":2}\n");
}

TEST_P(StorageTest, NoNameLeavesTheRoot) {
  for (const char* name : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a/.."}) {
    EXPECT_EQ(code_of([&] { storage_->put(name, "x"); }), ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(code_of([&] { storage_->create(name); }), ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(code_of([&] { (void)storage_->get(name); }), ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(code_of([&] { storage_->remove(name); }), ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(code_of([&] { (void)storage_->list("../"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { (void)storage_->get(std::string_view("a\0b", 3)); }),
            ErrorCode::kInvalidArgument);
}

TEST_P(StorageTest, TheSameUriIsTheSameRoot) {
  storage_->put("shared", "1");
  EXPECT_EQ(open_storage(uri_)->get("shared"), "1");
}

TEST_P(StorageTest, AFullDiskCutsAWriteAndSaysSo) {
  const auto faults = std::make_shared<StorageFaults>();
  const auto faulty = make_faulty_storage(storage_, faults);
  faults->room_bytes = 7;
  const auto file = faulty->create("x");
  append(*file, "12345");
  EXPECT_EQ(code_of([&] { append(*file, "67890"); }), ErrorCode::kIo);
  EXPECT_EQ(file->size_bytes(), 7u);
  EXPECT_EQ(storage_->get("x"), "1234567");
  faults->room_bytes = 100;
  append(*file, "8");
  EXPECT_EQ(storage_->get("x"), "12345678");
}

INSTANTIATE_TEST_SUITE_P(Backends, StorageTest, ::testing::Values("local", "memory"),
                         [](const auto& param) { return param.param; });

TEST(LocalStorageTest, NothingIsCreatedUntilSomethingIsWritten) {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "new" / "run";
  const auto storage = open_storage(root.string());
  EXPECT_THAT(storage->list(""), IsEmpty());
  EXPECT_FALSE(fs::exists(folder.path() / "new"));
  storage->put("a", "b");
  EXPECT_TRUE(fs::exists(root / "a"));
}

TEST(LocalStorageTest, ARelativeRootSurvivesAChangeOfDirectory) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const auto storage = open_storage("relative/run");
  fs::current_path(before);
  storage->put("a", "b");
  EXPECT_TRUE(fs::exists(folder.path() / "relative" / "run" / "a"));
}

TEST(LocalStorageTest, UrisAndTheHomeFolderAreUnderstood) {
  const TemporaryFolder folder;
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", folder.path().c_str(), 1);
  open_storage("~/from_home")->put("a", "1");
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_TRUE(fs::exists(folder.path() / "from_home" / "a"));
  open_storage("file://" + folder.path().string() + "/with%20blank")->put("a", "2");
  EXPECT_TRUE(fs::exists(folder.path() / "with blank" / "a"));
  EXPECT_EQ(open_storage(folder.path().string() + "/x/../y/")->uri(),
            (folder.path() / "y").string());
}

TEST(LocalStorageTest, UnfinishedFilesAreNotListed) {
  const TemporaryFolder folder;
  const auto storage = open_storage(folder.path().string());
  std::ofstream(folder.path() / ".tmp-123-0") << "half";
  storage->put("whole", "1");
  EXPECT_THAT(names(storage->list("")), ElementsAre("whole"));
}

TEST(LocalStorageTest, ErrorsNameThePath) {
  if (::geteuid() == 0) {
    // Root may write anywhere: a file where a folder is needed fails for everybody.
    const TemporaryFolder folder;
    std::ofstream(folder.path() / "file") << "x";
    const auto storage = open_storage((folder.path() / "file").string());
    EXPECT_EQ(code_of([&] { storage->put("a", "b"); }), ErrorCode::kIo);
    return;
  }
  const auto storage = open_storage("/proc/tensortap-test");
  try {
    storage->put("a", "b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/proc/tensortap-test/a"));
  }
}

TEST(OpenStorageTest, UnknownSchemesListTheKnownOnes) {
  try {
    open_storage("gopher://host/run");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("file:"));
    EXPECT_THAT(error.what(), HasSubstr("mem:"));
  }
  EXPECT_THROW(open_storage(""), Error);
}

}  // namespace
}  // namespace tensortap
