#include "base/error.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

TEST(Error, IoErrorNamesTheCauseAndEndsWithThePath) {
  try {
    throw_io_error("cannot open the run", ENOENT, "/runs/a b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_STREQ(error.what(), "cannot open the run: No such file or directory: /runs/a b");
  }
}

TEST(Error, CodeNamesAreSnakeCase) {
  EXPECT_EQ(error_code_name(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(error_code_name(ErrorCode::kAlreadyExists), "already_exists");
  EXPECT_EQ(error_code_name(ErrorCode::kInternal), "internal");
}

}  // namespace
}  // namespace tensortap
