#include "capture/step_planner.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

using ::testing::HasSubstr;

constexpr std::uint8_t kStats = StepPlan::kStatistics;
constexpr std::uint8_t kRaw = StepPlan::kRaw;
constexpr std::uint8_t kHist = StepPlan::kHistogram;

SaveConfig every(std::int64_t interval) {
  return SaveConfig::for_all_modes({.save_interval = interval});
}

// Collections to configure, then tensors given by the collections they are in.
class StepPlannerTest : public ::testing::Test {
 protected:
  StepPlanner& planner(std::set<std::string, std::less<>> included, ReductionConfig reductions = {},
                       SaveConfig save_config = every(10)) {
    for (const std::string& name : included) set_.get_or_create(name);
    planner_.emplace(
        PlannerDefaults{std::move(save_config), std::move(reductions), std::move(included)});
    planner_->configure(set_);
    return *planner_;
  }
  void add(std::vector<std::string> collections) { planner_->add_tensor(collections); }

  CollectionSet set_;
  std::optional<StepPlanner> planner_;
};

TEST_F(StepPlannerTest, SavesOnlyIncludedCollections) {
  set_.get_or_create("weights");
  planner({"biases"});
  add({"weights"});
  add({"biases"});
  add({});
  const StepPlan& plan = planner_->select(Mode::kTrain, 0);
  EXPECT_TRUE(plan.any_due());
  EXPECT_FALSE(plan.is_due(0));
  EXPECT_EQ(plan.flags(1), kStats | kHist);
  EXPECT_FALSE(plan.is_due(2));
  EXPECT_FALSE(plan.is_due(3));  // no such tensor
}

TEST_F(StepPlannerTest, SavesEverythingWhenAllIsIncluded) {
  set_.get_or_create("weights").save_config = every(5);
  planner({"all"});
  add({"all"});
  add({"all", "weights"});
  EXPECT_TRUE(planner_->select(Mode::kTrain, 10).is_due(0));
  const StepPlan& plan = planner_->select(Mode::kTrain, 5);
  EXPECT_FALSE(plan.is_due(0));
  EXPECT_TRUE(plan.is_due(1));
}

TEST_F(StepPlannerTest, TakesACollectionsOwnSaveConfigAndTheHooksForTheRest) {
  SaveConfig own;
  own.at(Mode::kTrain) = SaveConfigMode{.save_interval = 3};
  set_.get_or_create("weights").save_config = own;
  planner({"weights"});
  add({"weights"});
  EXPECT_TRUE(planner_->select(Mode::kTrain, 3).is_due(0));
  EXPECT_FALSE(planner_->select(Mode::kTrain, 10).is_due(0));
  EXPECT_FALSE(planner_->select(Mode::kEval, 3).is_due(0));
  EXPECT_TRUE(planner_->select(Mode::kEval, 10).is_due(0));
}

TEST_F(StepPlannerTest, ReplacesTheHooksReductionsByTheCollections) {
  set_.get_or_create("weights").reduction_config = ReductionConfig{};
  planner({"weights", "biases"}, {.save_raw_tensor = true});
  add({"weights"});
  add({"biases"});
  const StepPlan& plan = planner_->select(Mode::kTrain, 0);
  EXPECT_EQ(plan.flags(0), kStats | kHist);
  EXPECT_EQ(plan.flags(1), kStats | kRaw | kHist);
}

TEST_F(StepPlannerTest, GivesATensorTheUnionOfItsDueCollections) {
  Collection& raw = set_.get_or_create("raw");
  raw.reduction_config = ReductionConfig{.save_raw_tensor = true};
  raw.save_histogram = false;
  raw.save_config = every(4);
  set_.get_or_create("drawn").save_config = every(6);
  planner({"raw", "drawn"});
  add({"raw", "drawn"});
  EXPECT_EQ(planner_->select(Mode::kTrain, 4).flags(0), kStats | kRaw);
  EXPECT_EQ(planner_->select(Mode::kTrain, 6).flags(0), kStats | kHist);
  EXPECT_EQ(planner_->select(Mode::kTrain, 12).flags(0), kStats | kRaw | kHist);
  EXPECT_FALSE(planner_->select(Mode::kTrain, 1).any_due());
}

TEST_F(StepPlannerTest, KeepsValuesAndNoHistogramsOfScalarCollections) {
  set_.get_or_create("losses").reduction_config = ReductionConfig{.save_raw_tensor = false};
  planner({"losses"});
  add({"losses"});
  EXPECT_EQ(planner_->select(Mode::kTrain, 0).flags(0), kStats | kRaw);
}

TEST_F(StepPlannerTest, SavesGradientsAndOptimizerVariablesOnlyWhileTraining) {
  planner({"gradients", "optimizer_variables", "weights"});
  add({"gradients"});
  add({"optimizer_variables"});
  add({"weights"});
  for (const Mode mode : {Mode::kTrain, Mode::kGlobal}) {
    const StepPlan& plan = planner_->select(mode, 0);
    EXPECT_TRUE(plan.is_due(0) && plan.is_due(1) && plan.is_due(2)) << mode_name(mode);
  }
  for (const Mode mode : {Mode::kEval, Mode::kPredict}) {
    const StepPlan& plan = planner_->select(mode, 0);
    EXPECT_FALSE(plan.is_due(0) || plan.is_due(1)) << mode_name(mode);
    EXPECT_TRUE(plan.is_due(2)) << mode_name(mode);
  }
}

TEST_F(StepPlannerTest, SwitchesACollectionOffByEndStepZero) {
  set_.get_or_create("losses").save_config =
      SaveConfig::for_all_modes({.save_interval = 1, .end_step = 0});
  planner({"losses", "weights"});
  EXPECT_FALSE(planner_->is_ever_due(std::vector<std::string>{"losses"}));
  EXPECT_TRUE(planner_->is_ever_due(std::vector<std::string>{"losses", "weights"}));
  EXPECT_FALSE(planner_->is_ever_due(std::vector<std::string>{"biases"}));
}

TEST_F(StepPlannerTest, IsDueBeforeThereAreTensors) {
  planner({"weights"});
  EXPECT_TRUE(planner_->select(Mode::kTrain, 0).any_due());
  EXPECT_FALSE(planner_->select(Mode::kTrain, 1).any_due());
}

TEST_F(StepPlannerTest, PlansOnceForEverySetOfDueCollections) {
  set_.get_or_create("losses").save_config = every(2);
  planner({"losses", "weights"});
  add({"losses"});
  add({"weights"});
  const StepPlan* both = &planner_->select(Mode::kTrain, 0);
  const StepPlan* losses = &planner_->select(Mode::kTrain, 2);
  EXPECT_NE(both, losses);
  EXPECT_EQ(&planner_->select(Mode::kTrain, 4), losses);
  EXPECT_EQ(&planner_->select(Mode::kEval, 10), both);
}

TEST_F(StepPlannerTest, AddsLateTensorsToTheRunningPlanAndToKeptOnes) {
  set_.get_or_create("losses").save_config = every(2);
  planner({"losses", "weights"});
  add({"losses"});
  EXPECT_FALSE(planner_->select(Mode::kTrain, 2).is_due(1));
  const StepPlan& plan = planner_->select(Mode::kTrain, 0);
  add({"weights"});
  EXPECT_TRUE(plan.is_due(1));
  planner_->update_tensor(1, std::vector<std::string>{"losses"});
  EXPECT_EQ(plan.flags(1), kStats | kRaw);
  EXPECT_TRUE(planner_->select(Mode::kTrain, 2).is_due(1));
}

TEST_F(StepPlannerTest, SurvivesMoreSchedulesThanItKeeps) {
  std::set<std::string, std::less<>> names;
  for (int i = 0; i < 7; ++i) {
    const std::string name = "c" + std::to_string(i);
    names.insert(name);
    // Bit i of the step: 128 different sets are due.
    SaveConfigMode config{.save_interval = 1, .end_step = 0};
    for (std::int64_t step = 0; step < 128; ++step) {
      if (((step >> i) & 1) != 0) config.save_steps.push_back(step);
    }
    set_.get_or_create(name).save_config = SaveConfig::for_all_modes(config);
  }
  planner(names);
  for (int i = 0; i < 7; ++i) add({"c" + std::to_string(i)});
  for (std::int64_t step = 0; step < 128; ++step) {
    const StepPlan& plan = planner_->select(Mode::kTrain, step);
    for (TensorId id = 0; id < 7; ++id) {
      ASSERT_EQ(plan.is_due(id), ((step >> id) & 1) != 0) << step << " " << id;
    }
  }
}

TEST_F(StepPlannerTest, NamesACustomCollectionThatCanMatchNothing) {
  StepPlanner& planner_under_test = planner({"relu_outputs", "losses"});
  try {
    planner_under_test.require_usable(set_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("'relu_outputs'"));
  }
  set_.get_or_create("relu_outputs").include("relu.*output");
  EXPECT_NO_THROW(planner_under_test.require_usable(set_));
  set_.get_or_create("empty but not included");
  EXPECT_NO_THROW(planner_under_test.require_usable(set_));
}

TEST_F(StepPlannerTest, RefusesAnIntervalOfZeroWhereverItStands) {
  set_.get_or_create("weights").save_config = every(0);
  EXPECT_THROW(planner({"weights"}), Error);
}

}  // namespace
}  // namespace tensortap
