// Steps in which nothing is due: begun without a look at the collections, counted like the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/recorder.h"
#include "capture/recorder_fixture_for_test.h"

namespace tensortap {
namespace {

using ::testing::ElementsAre;

// Runs `count` steps as a hook does. Gives the global steps that were not idle.
std::vector<std::int64_t> run(Recorder& recorder, int count) {
  std::vector<std::int64_t> looked_at;
  const FloatTensor loss({1.0F});
  for (int i = 0; i < count; ++i) {
    if (recorder.begin_idle_step(true)) continue;
    recorder.begin_step();
    looked_at.push_back(recorder.step());
    recorder.record(recorder.intern("loss_output_0"), loss.view());
  }
  return looked_at;
}

TEST_F(RecorderTest, IdleStepsEndOneBeforeTheNextThatIsDue) {
  Recorder& recorder = start(recorder_options({"losses"}, 5));
  // 0 and 5 are due; 1 finds out when the next one is, 4 is there to prepare for it.
  EXPECT_THAT(run(recorder, 8), ElementsAre(0, 1, 4, 5, 6));
  EXPECT_FALSE(recorder.is_next_step_due());
  run(recorder, 2);
  EXPECT_TRUE(recorder.is_next_step_due());
  run(recorder, 1);
  EXPECT_EQ(recorder.mode_step(Mode::kGlobal), 10);
  recorder.end_step();
  EXPECT_THAT(sink_.global_steps(), ElementsAre(0, 5, 10));
}

TEST_F(RecorderTest, AnIdleStepEndsNoneThatHoldsSomething) {
  Recorder& recorder = start(recorder_options({"losses"}, 50));
  run(recorder, 3);
  recorder.record_scalar("scalar/lr", 0.5);
  EXPECT_FALSE(recorder.begin_idle_step(true));
  recorder.begin_step();
  EXPECT_TRUE(recorder.begin_idle_step(true));
  recorder.end_step();
  EXPECT_THAT(sink_.global_steps(), ElementsAre(0, 2));
}

TEST_F(RecorderTest, IdleStepsAskAnewAfterAChangeOfModeOrCollections) {
  RecorderOptions options = recorder_options({"losses"}, 50);
  options.save_config.at(Mode::kEval) = SaveConfigMode{.save_interval = 1};
  Recorder& recorder = start(std::move(options));
  recorder.set_mode(Mode::kTrain);
  run(recorder, 5);
  recorder.set_mode(Mode::kEval);
  EXPECT_THAT(run(recorder, 2), ElementsAre(5, 6));
  recorder.set_mode(Mode::kTrain);
  run(recorder, 3);
  EXPECT_TRUE(recorder.begin_idle_step(true));
  recorder.collections().find("losses")->save_config =
      SaveConfig::for_all_modes({.save_interval = 1});
  recorder.invalidate_plan();
  EXPECT_THAT(run(recorder, 2), ElementsAre(11, 12));
}

TEST_F(RecorderTest, WhoDoesNotDriveOnlySeesToAnOpenStep) {
  Recorder& recorder = start(recorder_options({"losses"}, 50));
  EXPECT_FALSE(recorder.begin_idle_step(false));
  run(recorder, 4);
  const std::int64_t step = recorder.step();
  EXPECT_TRUE(recorder.begin_idle_step(false));
  EXPECT_EQ(recorder.step(), step);
  recorder.end_step();
  EXPECT_TRUE(recorder.begin_idle_step(false));
  EXPECT_EQ(recorder.step(), step + 1);
  EXPECT_TRUE(recorder.in_step());
}

TEST_F(RecorderTest, AskedCollectionsCountForANameThatNoRegexKnows) {
  Recorder& recorder = start(recorder_options({"relu_output"}, 1));
  const std::vector<std::string> asked = {"relu_output"};
  EXPECT_FALSE(recorder.is_included("1_output_0"));
  EXPECT_TRUE(recorder.is_included("1_output_0", asked));
  const TensorId id = recorder.intern("1_output_0", asked);
  EXPECT_TRUE(recorder.begin_step().is_due(id));
}

}  // namespace
}  // namespace tensortap
