#include "actions/registry.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

using testing::HasSubstr;

std::string message_of(std::string_view spec, ErrorCode code) {
  try {
    create_action(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << spec << " was accepted";
  return "";
}

TEST(CreateActionTest, StopTrainingHandsTheFindingOn) {
  Finding finding;
  finding.tensor = "loss";
  finding.step = 7;
  Finding received;
  ActionContext context;
  context.request_stop = [&](const Finding& given) { received = given; };
  create_action("stop_training")->run(finding, context);
  EXPECT_EQ(received, finding);
}

TEST(CreateActionTest, StopTrainingOutsideATrainingDoesNothing) {
  ActionContext context;
  create_action("stop_training")->run(Finding{}, context);
  EXPECT_FALSE(context.request_stop);
}

TEST(CreateActionTest, TakesSageMakersSpelling) {
  int count = 0;
  ActionContext context;
  context.request_stop = [&](const Finding&) { ++count; };
  create_action("StopTraining")->run(Finding{}, context);
  create_action("stop-training")->run(Finding{}, context);
  EXPECT_EQ(count, 2);
}

TEST(CreateActionTest, UnknownNameListsAndSuggests) {
  const std::string message = message_of("stop_trainin", ErrorCode::kNotFound);
  EXPECT_THAT(message, HasSubstr("unknown action 'stop_trainin'"));
  EXPECT_THAT(message, HasSubstr("did you mean 'stop_training'?"));
  EXPECT_THAT(message, HasSubstr("the actions are: stop_training"));
}

TEST(CreateActionTest, UnknownParameterNamesTheAction) {
  EXPECT_THAT(message_of("stop_training:after=3", ErrorCode::kInvalidArgument),
              HasSubstr("action stop_training"));
}

}  // namespace
}  // namespace tensortap
