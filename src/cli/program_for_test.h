// The program run inside a test, on a healthy and a sick run that a real session recorded. Used by
// the tests of cli/. Not thread-safe: it captures stdout and stderr.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "session/tiny_training_for_test.h"

namespace tensortap::test_support {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline Outcome run(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"tensortap"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = run_program(static_cast<int>(argv.size()), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// A failure is one line that says who speaks.
inline void expect_failure(const Outcome& outcome, int code, const std::string& text) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_THAT(outcome.err,
              testing::AllOf(testing::StartsWith("tensortap: "), testing::HasSubstr(text)));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

inline void flip_byte(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get() ^ 0x55);
  file.seekp(offset);
  file.put(byte);
}

// One healthy and one sick run for all tests: they only read.
class ProgramTest : public testing::Test {
 protected:
  static constexpr int kGoodSteps = 30;

  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    good_ = directory_->path("good");
    TinyTraining healthy(session_options(good_, {{"ExplodingTensor", {}, {}}}));
    healthy.train(kGoodSteps - 1, kGoodRate);
    healthy.session().recorder().set_mode(Mode::kEval);
    healthy.session().recorder().record_text("note", "a text\nof two lines");
    healthy.train(1, 0.0f);
    healthy.session().close();
    bad_ = directory_->path("bad");
    TinyTraining sick(session_options(bad_, {{"ExplodingTensor", {}, {"stop_training"}}}));
    bad_steps_ = sick.train(1000, kBadRate);
    sick.session().close();
  }
  static void TearDownTestSuite() { delete directory_; }

  static std::string copy_of_good(const std::string& name) {
    const std::string copy = directory_->path(name);
    std::filesystem::copy(good_, copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  static std::string segment_of(const std::string& run) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run + "/trace")) {
      if (entry.path().extension() == ".ttap") return entry.path().string();
    }
    return "";
  }

  static inline TemporaryDirectory* directory_ = nullptr;
  static inline std::string good_;
  static inline std::string bad_;
  static inline int bad_steps_ = 0;
};

}  // namespace tensortap::test_support
