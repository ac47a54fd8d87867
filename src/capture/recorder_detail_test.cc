// raise_detail: full detail for some steps, and everything as before afterwards.
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/recorder_fixture_for_test.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RecorderDetailTest : public RecorderTest {
 protected:
  void run(Mode mode, int step_count) {
    recorder_->set_mode(mode);
    for (int i = 0; i < step_count; ++i) {
      recorder_->begin_step();
      // Ids anew each time, as a hook asks after plan_version() has changed.
      for (const char* name : {"fc.weight", "fc.bias", "gradient/fc.weight"}) {
        recorder_->record(recorder_->intern(name), values_.view());
      }
      recorder_->end_step();
    }
  }

  const FloatTensor values_{{1, 2, 3}};
};

TEST_F(RecorderDetailTest, SavedCollectionsAreRecordedAtEveryStepForAWhile) {
  start(recorder_options({"weights"}, 10));
  run(Mode::kTrain, 3);
  const std::uint64_t version = recorder_->plan_version();
  recorder_->raise_detail({}, 4, false);
  EXPECT_GT(recorder_->plan_version(), version);
  run(Mode::kTrain, 20);
  EXPECT_THAT(sink_.mode_steps("fc.weight", Mode::kTrain), ElementsAre(0, 3, 4, 5, 6, 10, 20));
  EXPECT_THAT(sink_.mode_steps("fc.bias", Mode::kTrain), IsEmpty());
  EXPECT_EQ(sink_.raw(*sink_.steps.at(1), "fc.weight"), nullptr);
}

TEST_F(RecorderDetailTest, CollectionsThatWereNotSavedAreSavedForAWhile) {
  start(recorder_options({"weights"}, 10));
  run(Mode::kTrain, 2);
  EXPECT_FALSE(recorder_->is_included("gradient/fc.weight"));
  const std::array<std::string, 2> collections = {"gradients", "no such collection"};
  recorder_->raise_detail(collections, 2, true);
  EXPECT_TRUE(recorder_->is_included("gradient/fc.weight"));
  run(Mode::kTrain, 1);
  EXPECT_TRUE(recorder_->is_included("gradient/fc.weight"));
  run(Mode::kTrain, 9);
  EXPECT_FALSE(recorder_->is_included("gradient/fc.weight"));
  EXPECT_THAT(sink_.mode_steps("gradient/fc.weight", Mode::kTrain), ElementsAre(2, 3));
  EXPECT_THAT(sink_.mode_steps("fc.weight", Mode::kTrain), ElementsAre(0, 10));
  EXPECT_NE(sink_.raw(*sink_.steps.at(1), "gradient/fc.weight"), nullptr);
}

TEST_F(RecorderDetailTest, AllIsEveryTensorAndANewWishReplacesTheOldOne) {
  start(recorder_options({"losses"}, 10));
  const std::array<std::string, 1> all = {"all"};
  recorder_->raise_detail(all, 100, false);
  run(Mode::kTrain, 1);
  recorder_->raise_detail(all, 1, false);
  run(Mode::kTrain, 5);
  EXPECT_THAT(sink_.mode_steps("fc.bias", Mode::kTrain), ElementsAre(0, 1));
}

TEST_F(RecorderDetailTest, HistogramsAreMadeAlthoughTheyAreSwitchedOff) {
  CollectionSet collections = builtin_collections();
  collections.find("weights")->save_histogram = false;
  Recorder& recorder = start(recorder_options({"weights"}, 1), std::move(collections));
  const TensorId weight = recorder.intern("fc.weight");
  recorder.begin_step();
  EXPECT_EQ(recorder.plan().flags(weight) & StepPlan::kHistogram, 0);
  recorder.raise_detail({}, 1, false);
  recorder.begin_step();
  EXPECT_NE(recorder.plan().flags(weight) & StepPlan::kHistogram, 0);
  recorder.begin_step();
  EXPECT_EQ(recorder.plan().flags(weight) & StepPlan::kHistogram, 0);
}

}  // namespace
}  // namespace tensortap
