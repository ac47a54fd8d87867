#include "capture/save_config.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

using Steps = std::vector<std::int64_t>;

Steps due_steps(const SaveConfigMode& config, std::int64_t end) {
  Steps result;
  for (std::int64_t step = 0; step < end; ++step) {
    if (config.should_save_step(step)) result.push_back(step);
  }
  return result;
}

// `due`: of the steps 0 to 12.
void expect_due(const char* what, const SaveConfigMode& config, const Steps& due) {
  EXPECT_EQ(due_steps(config, 13), due) << what;
  EXPECT_EQ(config.can_ever_save(), !due.empty()) << what;
  for (std::int64_t from = 0; from < 13; ++from) {
    const auto next = std::ranges::lower_bound(due, from);
    if (next == due.end()) continue;
    EXPECT_EQ(config.next_step(from), *next) << what << ", from " << from;
  }
}

TEST(SaveConfigMode, SavesTheStepsThatSmdebugSaves) {
  expect_due("every third", {.save_interval = 3}, {0, 3, 6, 9, 12});
  expect_due("the modulus counts from 0, not from the start", {.save_interval = 3, .start_step = 4},
             {6, 9, 12});
  expect_due("the end is exclusive", {.save_interval = 3, .end_step = 9}, {0, 3, 6});
  expect_due("the start is inclusive", {.save_interval = 3, .start_step = 6, .end_step = 10},
             {6, 9});
  expect_due("listed steps and the interval are a union",
             {.save_interval = 5, .save_steps = {7, 1}}, {0, 1, 5, 7, 10});
  expect_due("listed steps know no start and end",
             {.save_interval = 2, .start_step = 4, .end_step = 7, .save_steps = {1, 11}},
             {1, 4, 6, 11});
  expect_due("end 0 saves nothing", {.save_interval = 1, .end_step = 0}, {});
  expect_due("end 0 with a list saves the list",
             {.save_interval = 1, .end_step = 0, .save_steps = {2}}, {2});
  expect_due("a start at the end saves nothing",
             {.save_interval = 1, .start_step = 5, .end_step = 5}, {});
  expect_due("the default", {}, {0});
}

TEST(SaveConfigMode, KnowsThatNoMultipleLiesBetweenStartAndEnd) {
  EXPECT_FALSE(
      (SaveConfigMode{.save_interval = 10, .start_step = 1, .end_step = 10}.can_ever_save()));
  EXPECT_TRUE(
      (SaveConfigMode{.save_interval = 10, .start_step = 1, .end_step = 11}.can_ever_save()));
  EXPECT_TRUE((SaveConfigMode{.save_interval = 10, .start_step = INT64_MAX}.can_ever_save()));
  EXPECT_FALSE((SaveConfigMode{.save_interval = INT64_MAX, .start_step = 1, .end_step = INT64_MAX}
                    .can_ever_save()));
}

TEST(SaveConfigMode, KnowsWhenNoStepIsLeft) {
  EXPECT_EQ((SaveConfigMode{.save_interval = 3, .end_step = 9}.next_step(7)),
            SaveConfigMode::kNever);
  EXPECT_EQ((SaveConfigMode{.save_interval = 3, .end_step = 9, .save_steps = {20}}.next_step(7)),
            20);
  EXPECT_EQ((SaveConfigMode{.save_interval = INT64_MAX, .start_step = 1}.next_step(1)),
            SaveConfigMode::kNever);
  EXPECT_EQ((SaveConfigMode{.save_interval = 10, .start_step = INT64_MAX}.next_step(0)),
            SaveConfigMode::kNever);
}

TEST(SaveConfigMode, RefusesWhatCannotBeMeant) {
  const auto refuses = [](const SaveConfigMode& config) {
    try {
      config.validate();
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument;
    }
  };
  EXPECT_TRUE(refuses({.save_interval = 0}));
  EXPECT_TRUE(refuses({.save_interval = -5}));
  EXPECT_TRUE(refuses({.start_step = -1}));
  EXPECT_TRUE(refuses({.end_step = -1}));
  EXPECT_TRUE(refuses({.save_steps = {3, -1}}));
  EXPECT_FALSE(refuses({.save_interval = 1, .start_step = 9, .end_step = 0}));
  // Not validated, it still must not divide by zero.
  EXPECT_FALSE(SaveConfigMode{.save_interval = 0}.should_save_step(0));
}

TEST(SaveConfig, FillsEmptyModesAndLeavesTheOthers) {
  SaveConfig config;
  config.at(Mode::kEval) = SaveConfigMode{.save_interval = 7};
  SaveConfig hook;
  hook.at(Mode::kTrain) = SaveConfigMode{.save_interval = 3};
  hook.at(Mode::kEval) = SaveConfigMode{.save_interval = 4};
  config.fill_missing_from(hook);
  EXPECT_EQ(config.at(Mode::kTrain)->save_interval, 3);
  EXPECT_EQ(config.at(Mode::kEval)->save_interval, 7);
  EXPECT_EQ(config.at(Mode::kPredict)->save_interval, 500);
  EXPECT_EQ(config.at(Mode::kGlobal)->save_interval, 500);
}

TEST(SaveConfig, IsTheSameForAllModes) {
  const SaveConfig config = SaveConfig::for_all_modes({.save_interval = 2, .start_step = 4});
  for (const Mode mode : {Mode::kTrain, Mode::kEval, Mode::kPredict, Mode::kGlobal}) {
    EXPECT_EQ(config.at(mode), (SaveConfigMode{.save_interval = 2, .start_step = 4}));
  }
  EXPECT_THROW(SaveConfig::for_all_modes({.save_interval = 0}).validate(), Error);
}

}  // namespace
}  // namespace tensortap
