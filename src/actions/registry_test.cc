#include "actions/registry.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actions/spec.h"
#include "base/error.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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
  create_action("stop_training").action->run(finding, context);
  EXPECT_EQ(received, finding);
}

TEST(CreateActionTest, OutsideATrainingThereIsNothingToDo) {
  ActionContext context;
  EXPECT_THAT(create_action("stop_training").action->run(Finding{}, context).detail,
              HasSubstr("nothing to stop"));
  EXPECT_THAT(create_action("capture_more").action->run(Finding{}, context).detail,
              HasSubstr("nothing to record"));
  EXPECT_THROW(create_action("save_checkpoint").action->run(Finding{}, context), Error);
}

TEST(CreateActionTest, TakesEverySpelling) {
  for (const char* spec :
       {"StopTraining", "stop-training", " stop_training ", "stop_training()",
        R"({"name": "stoptraining", "training_job_prefix": "My-Job"})",
        R"({\"name\": \"StopTraining\", \"training_job_prefix\": \"My-Job\"})"}) {
    EXPECT_EQ(create_action(spec).descriptor->name, "stop_training") << spec;
  }
  DetailWish wish;
  ActionContext context;
  context.raise_detail = [&](const Finding&, const DetailWish& given) { wish = given; };
  for (
      const char* spec :
      {"capture_more(steps=3,collections=losses,weights,raw=yes)",
       "CaptureMore:steps=3,collections=[losses,weights],raw=true",
       R"({"name": "capture_more", "steps": 3, "collections": ["losses", "weights"], "raw": true})"}) {
    wish = {};
    create_action(spec).action->run(Finding{}, context);
    EXPECT_EQ(wish.step_count, 3) << spec;
    EXPECT_THAT(wish.collections, ElementsAre("losses", "weights")) << spec;
    EXPECT_TRUE(wish.with_raw) << spec;
  }
}

TEST(CreateActionTest, UnknownNameListsAndSuggests) {
  const std::string message = message_of("stop_trainin", ErrorCode::kNotFound);
  EXPECT_THAT(message, HasSubstr("unknown action 'stop_trainin'"));
  EXPECT_THAT(message, HasSubstr("did you mean 'stop_training'?"));
  EXPECT_THAT(message, HasSubstr("the actions are: capture_more, command, email"));
}

TEST(CreateActionTest, WrongParametersNameTheActionAndWhatIsValid) {
  EXPECT_THAT(message_of("stop_training:after=3", ErrorCode::kInvalidArgument),
              HasSubstr("action stop_training has no parameter 'after'"));
  EXPECT_THAT(message_of("email(to=a@x.org,server=mx,ttl=3)", ErrorCode::kInvalidArgument),
              HasSubstr("password_env"));
  EXPECT_THAT(message_of("email(server=mx)", ErrorCode::kInvalidArgument), HasSubstr("to=ADDRESS"));
  EXPECT_THAT(message_of("email(to=a@x.org)", ErrorCode::kInvalidArgument),
              HasSubstr("TENSORTAP_SMTP_SERVER"));
  EXPECT_THAT(message_of("sms(phone=5551234)", ErrorCode::kInvalidArgument), HasSubstr("+NUMBER"));
  EXPECT_THAT(message_of("command", ErrorCode::kInvalidArgument), HasSubstr("argv"));
  EXPECT_THAT(message_of("capture_more(steps=0)", ErrorCode::kInvalidArgument), HasSubstr("steps"));
  EXPECT_THAT(message_of("webhook(url=https://h/x,shape=irc)", ErrorCode::kInvalidArgument),
              HasSubstr("discord"));
}

TEST(CreateActionTest, MailAddressesCannotCarryAHeader) {
  for (const char* address : {"a@x.org\\r\\nBcc: b@x.org", "a@x.org\\nX: y", "a@x.org> b@x.org",
                              "a b@x.org", "a@b@x.org", "@x.org", "a@", "a"}) {
    const std::string spec =
        std::string(R"({"name": "email", "server": "mx", "to": [")") + address + R"("]})";
    EXPECT_THAT(message_of(spec, ErrorCode::kInvalidArgument), HasSubstr("not an address"));
  }
}

TEST(CreateActionTest, SecretsAreNeitherShownNorRepeated) {
  EXPECT_EQ(
      create_action("webhook(url=https://hooks.slack.com/services/T/B/KEY,shape=slack)").shown,
      "webhook(shape=slack,url=https://hooks.slack.com/…)");
  EXPECT_EQ(create_action(R"(command(argv=["curl", "-H", "Token: KEY"],timeout=3))").shown,
            "command(argv=curl …,timeout=3)");
  EXPECT_THAT(message_of("webhook(url=hooks.slack.com/KEY)", ErrorCode::kInvalidArgument),
              Not(HasSubstr("KEY")));
  EXPECT_THAT(message_of("webhook(https://hooks.slack.com/KEY)", ErrorCode::kInvalidArgument),
              Not(HasSubstr("KEY")));
  EXPECT_THAT(message_of("webhook(url=https://h/KEY", ErrorCode::kInvalidArgument),
              Not(HasSubstr("KEY")));
  EXPECT_THAT(
      message_of(R"({"name": "webhook", "url": "https://h/KEY")", ErrorCode::kInvalidArgument),
      Not(HasSubstr("KEY")));
}

TEST(CreateActionTest, AMissingSecretIsNoticedBeforeTheTraining) {
  unsetenv("TENSORTAP_TEST_SECRET");
  EXPECT_THAT(message_of("webhook(url_env=TENSORTAP_TEST_SECRET)", ErrorCode::kNotFound),
              HasSubstr("no variable TENSORTAP_TEST_SECRET"));
  EXPECT_THAT(message_of("webhook(url_file=/nowhere/at/all)", ErrorCode::kNotFound),
              HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(message_of("webhook(url_file=/nowhere,url_env=PATH)", ErrorCode::kInvalidArgument),
              HasSubstr("not both"));
  EXPECT_THAT(message_of("email(to=a@x.org,server=mx,user=u)", ErrorCode::kInvalidArgument),
              HasSubstr("password"));
}

TEST(SplitActionsTest, KeepsBracketsTogether) {
  EXPECT_THAT(split_actions("stop_training, email(to=a@x.org,server=mx)"),
              ElementsAre("stop_training", "email(to=a@x.org,server=mx)"));
  EXPECT_THAT(split_actions("[stop_training, sms(phone=+1)]"),
              ElementsAre("stop_training", "sms(phone=+1)"));
  EXPECT_THAT(split_actions(R"([{"name": "sms", "endpoint": "+1"}, "stop_training"])"),
              ElementsAre(R"({"endpoint":"+1","name":"sms"})", "stop_training"));
  EXPECT_THAT(split_actions(R"({"name": "sms"})"), ElementsAre(R"({"name": "sms"})"));
  EXPECT_THAT(split_actions(""), ElementsAre());
  EXPECT_THAT(split_actions(R"({"name": "sms"},{"name": "b", "to": ["a", "b"]})"),
              ElementsAre(R"({"name": "sms"})", R"({"name": "b", "to": ["a", "b"]})"));
}

TEST(TakeActionsTest, FromTheTextOfARule) {
  RuleSpec rule = parse_rule_spec("X:a=1,actions=stop_training,email(to=a@x.org,server=mx),b=2");
  take_actions(rule);
  EXPECT_THAT(rule.actions, ElementsAre("stop_training", "email(to=a@x.org,server=mx)"));
  EXPECT_EQ(rule.parameters.size(), 2u);
}

TEST(ActionsOfTest, SageMakersParameterStops) {
  EXPECT_THAT(actions_of(parse_rule_spec("StalledTrainingRule:stop_training_on_fire=True")),
              ElementsAre("stop_training"));
  EXPECT_THAT(actions_of(parse_rule_spec("StalledTrainingRule:stop_training_on_fire=false")),
              ElementsAre());
}

TEST(ListOfTest, JsonKeepsCommas) {
  EXPECT_THAT(list_of(R"(["sh", "-c", "a, b"])"), ElementsAre("sh", "-c", "a, b"));
  EXPECT_THAT(list_of("[echo,hello]"), ElementsAre("echo", "hello"));
  EXPECT_THAT(list_of("a, b"), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace tensortap
