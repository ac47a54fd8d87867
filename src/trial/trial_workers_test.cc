// Several workers in one run: completeness, late and ended workers, diverging modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "trial/run_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Mode kTrain = Mode::kTrain;
constexpr Mode kEval = Mode::kEval;

std::shared_ptr<Trial> open(const std::shared_ptr<MemoryRun>& run) {
  return std::make_shared<Trial>(run);
}

TEST(TrialWorkers, AStepIsCompleteWhenEveryWorkerHasWrittenIt) {
  const auto run = std::make_shared<MemoryRun>();
  run->appear("a");
  run->appear("b");
  const auto trial = open(run);
  run->write("a", global_step(0), {{"w", {1}}});
  trial->refresh();
  EXPECT_THAT(trial->steps(), IsEmpty());
  EXPECT_THAT(trial->steps(Mode::kGlobal, true), ElementsAre(0));
  EXPECT_EQ(trial->has_passed_step(0), StepState::kNotYetAvailable);
  EXPECT_FALSE(trial->row("w", 0));  // never half a step
  EXPECT_THAT(trial->column("w", StatisticId::kMean).steps, IsEmpty());

  run->write("a", global_step(10), {{"w", {2}}});
  run->write("b", global_step(10), {{"w", {3}}, {"only_b", {4, 5}}});
  trial->refresh();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 10));  // 0 through the later one
  EXPECT_THAT(trial->tensor_workers("w", 0), ElementsAre("a"));
  EXPECT_THAT(trial->tensor_workers("w", 10), ElementsAre("a", "b"));
  EXPECT_EQ(trial->row("w", 10)->statistics.mean, 2.0);
  EXPECT_EQ(trial->row("w", 10, Mode::kGlobal, "b")->statistics.mean, 3.0);
  EXPECT_EQ(trial->row("only_b", 10)->statistics.max, 5.0);
  EXPECT_FALSE(trial->row("only_b", 10, Mode::kGlobal, "a"));
  EXPECT_THAT(trial->column("w", StatisticId::kMean).values, ElementsAre(1, 2));
  EXPECT_THAT(trial->column("w", StatisticId::kMean, Mode::kGlobal, "b").values, ElementsAre(3));
  try {
    trial->row("w", 10, Mode::kGlobal, "c");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("a, b"));
  }

  const auto records = trial->records(0);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0], nullptr);
  EXPECT_EQ(records[1], nullptr);
}

TEST(TrialWorkers, AnEndedWorkerHoldsNobodyUp) {
  const auto run = std::make_shared<MemoryRun>();
  run->write("a", global_step(0), {{"w", {1}}});
  run->write("b", global_step(0), {{"w", {1}}});
  run->write("a", global_step(1), {{"w", {1}}});
  const auto trial = open(run);
  EXPECT_THAT(trial->steps(), ElementsAre(0));
  run->end("b");
  trial->refresh();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1));
  EXPECT_FALSE(trial->has_ended());
  run->write("a", global_step(2), {{"w", {1}}});
  run->end("a");
  trial->refresh();
  EXPECT_TRUE(trial->has_ended());
  EXPECT_EQ(trial->has_passed_step(3), StepState::kUnavailable);
}

TEST(TrialWorkers, ALateWorkerIsTakenIn) {
  const auto run = std::make_shared<MemoryRun>();
  run->write("m", global_step(0), {{"w", {1}}});
  run->write("m", global_step(1), {{"w", {2}}});
  const auto trial = open(run);
  EXPECT_THAT(trial->workers(), ElementsAre("m"));
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1));
  run->write("a", global_step(0), {{"fresh", {7}}, {"w", {10}}});  // sorts before the other
  trial->refresh();
  EXPECT_THAT(trial->workers(), ElementsAre("a", "m"));
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1));  // what was complete stays so
  EXPECT_THAT(trial->tensor_names(), ElementsAre("fresh", "w"));
  EXPECT_THAT(trial->tensor_workers("w", 0), ElementsAre("a", "m"));
  EXPECT_THAT(trial->column("w", StatisticId::kMean).values, ElementsAre(10, 2));
  run->write("m", global_step(2), {{"w", {3}}});
  trial->refresh();
  EXPECT_EQ(trial->has_passed_step(2), StepState::kNotYetAvailable);
  run->write("a", global_step(2), {{"w", {30}}});
  trial->refresh();
  EXPECT_THAT(trial->column("w", StatisticId::kMean, Mode::kGlobal, "m").values,
              ElementsAre(1, 2, 3));
}

// Only the first worker evaluates: from then on the same train step has different global steps.
TEST(TrialWorkers, WorkersWhoseModesDivergeMeetAtTheirModeSteps) {
  const auto run = std::make_shared<MemoryRun>();
  run->write("a", mode_step(0, kTrain, 0), {{"w", {1}}});
  run->write("b", mode_step(0, kTrain, 0), {{"w", {2}}});
  run->write("a", mode_step(1, kEval, 0), {{"w", {50}}});
  run->write("a", mode_step(2, kTrain, 1), {{"w", {3}}});
  run->write("b", mode_step(1, kTrain, 1), {{"w", {4}}});
  const auto trial = open(run);
  EXPECT_EQ(trial->row("w", 1, kTrain, "a")->statistics.mean, 3.0);
  EXPECT_EQ(trial->row("w", 1, kTrain, "b")->statistics.mean, 4.0);
  EXPECT_THAT(trial->steps(kTrain), ElementsAre(0, 1));
  EXPECT_THAT(trial->steps(kEval), ElementsAre(0));
}

}  // namespace
}  // namespace tensortap
