#include "base/files.h"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open_descriptor(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(FileDescriptor, ClosesWhatItOwns) {
  const int fd = open_null();
  {
    const FileDescriptor owner(fd);
    EXPECT_TRUE(owner.is_open());
    EXPECT_TRUE(is_open_descriptor(fd));
  }
  EXPECT_FALSE(is_open_descriptor(fd));
}

TEST(FileDescriptor, MovingHandsOver) {
  const int fd = open_null();
  FileDescriptor first(fd);
  FileDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), fd);

  const int other_fd = open_null();
  FileDescriptor third(other_fd);
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_TRUE(is_open_descriptor(fd));
  EXPECT_FALSE(is_open_descriptor(other_fd)) << "the one it held must be closed";
}

TEST(FileDescriptor, AssigningToItselfKeepsIt) {
  const int fd = open_null();
  FileDescriptor owner(fd);
  FileDescriptor& same = owner;
  owner = std::move(same);
  EXPECT_EQ(owner.get(), fd);
  EXPECT_TRUE(is_open_descriptor(fd));
}

}  // namespace
}  // namespace tensortap
