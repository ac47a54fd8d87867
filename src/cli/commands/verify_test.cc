// What `tensortap verify` and the other commands say of runs that are damaged, torn or no runs.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program_for_test.h"

namespace tensortap {
namespace {

using test_support::expect_failure;
using test_support::flip_byte;
using test_support::kGoodRate;
using test_support::Outcome;
using test_support::ProgramTest;
using test_support::run;
using test_support::session_options;
using test_support::TinyTraining;
using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class VerifyTest : public ProgramTest {};

nlohmann::json json(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }
nlohmann::json answer(std::vector<std::string> arguments) {
  return json(run(std::move(arguments)));
}

TEST_F(VerifyTest, VerifyOfACleanRun) {
  const Outcome text = run({"verify", good_});
  EXPECT_EQ(text.code, kExitOk) << text.out << text.err;
  EXPECT_THAT(text.out, HasSubstr("clean: 30 steps readable in 1 segment\n"));
  const nlohmann::json json = answer({"verify", segment_of(good_), "--json"});
  EXPECT_EQ(json["is_clean"], true);
  EXPECT_EQ(json["segments"][0]["step_count"], 30);
  EXPECT_EQ(json["segments"][0]["size_bytes"], fs::file_size(segment_of(good_)));
  EXPECT_EQ(json["segments"][0]["is_sealed"], true);
}

TEST_F(VerifyTest, VerifyFindsAFlippedByteInAStep) {
  const std::string copy = copy_of_good("flipped");
  flip_byte(segment_of(copy), static_cast<std::int64_t>(fs::file_size(segment_of(copy)) / 4));
  const Outcome text = run({"verify", copy});
  EXPECT_EQ(text.code, kExitError);
  EXPECT_THAT(text.out, AllOf(HasSubstr("DAMAGED"), HasSubstr(".ttap")));
  EXPECT_EQ(answer({"verify", copy, "--json"})["is_clean"], false);
}

TEST_F(VerifyTest, AnswersFromADamagedRunDoNotLookWhole) {
  const std::string copy = copy_of_good("damaged");
  const std::string segment = segment_of(copy);
  // Unsealed, so that readers go through the damage instead of taking the index's word.
  fs::resize_file(segment, fs::file_size(segment) / 2);
  flip_byte(segment, static_cast<std::int64_t>(fs::file_size(segment) / 2));
  const Outcome checked = run({"check", copy, "--rule", "ExplodingTensor"});
  EXPECT_THAT(checked.err, HasSubstr("WARNING: part of the run cannot be read"));
  EXPECT_THAT(run({"show", copy, "loss_output_0"}).err, HasSubstr("WARNING: part of the run"));
  EXPECT_THAT(run({"ls", copy}).out, HasSubstr("problem "));
  EXPECT_EQ(run({"check", good_, "--rule", "ExplodingTensor"}).err, "");
}

TEST_F(VerifyTest, VerifyCallsATornTailByItsName) {
  const std::string copy = copy_of_good("torn");
  fs::remove_all(copy + "/end");
  // A third in: before the index that sealing wrote, and in the middle of some step.
  const std::string segment = segment_of(copy);
  const nlohmann::json whole = answer({"verify", copy, "--json"});
  fs::resize_file(segment, fs::file_size(segment) / 3 + 5);
  const Outcome text = run({"verify", copy});
  EXPECT_EQ(text.code, kExitOk) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("torn tail of "), HasSubstr("clean: ")));
  const nlohmann::json json = answer({"verify", copy, "--json"});
  EXPECT_GT(json["segments"][0]["torn_tail_bytes"], 0);
  EXPECT_LT(json["step_count"], whole["step_count"]);
  EXPECT_EQ(json["step_count"], Trial::open(copy)->steps().size());
}

TEST_F(VerifyTest, ATruncatedFileOfAnEndedRunIsDamage) {
  const std::string copy = copy_of_good("truncated");
  const std::string segment = segment_of(copy);
  fs::resize_file(segment, fs::file_size(segment) / 3 + 5);
  const Outcome outcome = run({"verify", copy});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("the file ends inside a frame"),
                                 HasSubstr("30 steps were written in the last session, and ")));
  EXPECT_EQ(run({"verify", segment}).code, kExitError);
}

TEST_F(VerifyTest, ALostSegmentOfAnEndedRunIsDamage) {
  const std::string copy = directory_->path("lost_segment");
  SessionOptions options = session_options(copy);
  options.recorder.writer.segment_size_bytes = 4096;
  {
    TinyTraining training(std::move(options));
    training.train(40, kGoodRate);
  }
  EXPECT_EQ(run({"verify", copy}).code, kExitOk);
  fs::remove(segment_of(copy));
  EXPECT_EQ(run({"verify", copy}).code, kExitError);
}

TEST_F(VerifyTest, DamageBeforeATornTailIsDamage) {
  const std::string copy = copy_of_good("torn_and_flipped");
  fs::remove_all(copy + "/end");
  const std::string segment = segment_of(copy);
  fs::resize_file(segment, fs::file_size(segment) / 3 + 5);
  flip_byte(segment, static_cast<std::int64_t>(fs::file_size(segment) / 2));
  EXPECT_EQ(run({"verify", copy}).code, kExitError);
}

TEST_F(VerifyTest, AFileThatIsNoTraceIsSaidToBeNone) {
  const std::string copy = copy_of_good("no_trace");
  std::ofstream(segment_of(copy), std::ios::trunc) << "this is no trace, although it is called one";
  const Outcome verified = run({"verify", copy});
  EXPECT_EQ(verified.code, kExitError) << verified.out;
  const std::string outside = directory_->path("outside.ttap");
  std::ofstream(outside) << "x";
  expect_failure(run({"verify", outside}), kExitError, "inside its run");
}

TEST_F(VerifyTest, DamagedRunFileIsReported) {
  const std::string copy = copy_of_good("bad_run_json");
  std::ofstream(copy + "/run.json", std::ios::trunc) << "{ not json";
  EXPECT_THAT(run({"ls", copy}).out, HasSubstr("problem      the description of the run"));
  const Outcome verified = run({"verify", copy});
  EXPECT_EQ(verified.code, kExitError);
  EXPECT_THAT(verified.out, HasSubstr("run.json: "));
}

}  // namespace
}  // namespace tensortap
