// `tensortap status`, `tensortap stop` and the actions of `tensortap check`.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "cli/program_for_test.h"
#include "session/control.h"

namespace tensortap {
namespace {

using test_support::expect_failure;
using test_support::kGoodRate;
using test_support::Outcome;
using test_support::run;
using test_support::session_options;
using test_support::TemporaryDirectory;
using test_support::TinyTraining;
using testing::HasSubstr;
using testing::Not;

class StatusTest : public test_support::ProgramTest {};

TEST_F(StatusTest, OneLineARuleAndTheExitCodeOfCheck) {
  const Outcome good = run({"status", good_});
  EXPECT_EQ(good.code, kExitOk) << good.err;
  EXPECT_THAT(good.out, HasSubstr("NoIssuesFound"));
  EXPECT_THAT(good.out, HasSubstr("3 tensors, 30 steps"));
  const Outcome bad = run({"status", bad_});
  EXPECT_EQ(bad.code, kExitFindings);
  EXPECT_THAT(bad.out, HasSubstr("IssuesFound"));
  EXPECT_THAT(bad.out, HasSubstr("stop_training done at step"));
}

TEST_F(StatusTest, JsonSaysTheSame) {
  const auto answer = nlohmann::json::parse(run({"status", bad_, "--json"}).out);
  EXPECT_EQ(answer["has_ended"], true);
  const auto& rule = answer["rules"][0];
  EXPECT_EQ(rule["name"], "ExplodingTensor");
  EXPECT_EQ(rule["status"], "IssuesFound");
  EXPECT_EQ(rule["actions"], nlohmann::json({"stop_training"}));
  EXPECT_EQ(rule["first_finding"]["step"], bad_steps_ - 1);
}

TEST_F(StatusTest, FollowingARunThatHasEndedEnds) {
  const Outcome outcome = run({"status", good_, "--follow"});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_EQ(outcome.out, "ExplodingTensor: NoIssuesFound, 0 findings (3 tensors, 30 steps)\n");
}

TEST_F(StatusTest, NoRulesAndRulesWithoutDataAreSaid) {
  const TemporaryDirectory directory;
  TinyTraining(session_options(directory.path("none"))).train(2, kGoodRate);
  EXPECT_THAT(run({"status", directory.path("none")}).err, HasSubstr("no rule watched"));
  TinyTraining(session_options(directory.path("blind"),
                               {{"ExplodingTensor", {{"collection_names", "nothing"}}, {}}}))
      .train(2, kGoodRate);
  const Outcome blind = run({"status", directory.path("blind")});
  EXPECT_THAT(blind.err, HasSubstr("NO DATA"));
  EXPECT_THAT(blind.out, HasSubstr("NoData"));
  expect_failure(run({"status", directory.path("nowhere")}), kExitError, "nowhere");
}

TEST_F(StatusTest, NonsenseInTheFilesDoesNoHarm) {
  const std::string copy = copy_of_good("nonsense");
  std::ofstream(copy + "/rules/a.json") << "[1, 2";
  std::ofstream(copy + "/rules/b.json") << R"({"name": "B", "finding_count": -3, "report": []})";
  std::ofstream(copy + "/rules/b.actions.jsonl") << "{\"action\": 5}\nnot json\n{\"act";
  const Outcome outcome = run({"status", copy});
  EXPECT_THAT(outcome.out, HasSubstr("ExplodingTensor"));
  // Their rules may have found something: that they cannot be read must show.
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("rule a failed: rules/a.json is damaged"));
  EXPECT_THAT(outcome.err, HasSubstr("rule b failed: rules/b.json is damaged"));
}

TEST_F(StatusTest, StopAsksARunningTrainingOnly) {
  expect_failure(run({"stop", good_}), kExitError, "has ended already");
  const TemporaryDirectory directory;
  SessionOptions options = session_options(directory.path("run"));
  options.control_interval_ms = 5;
  TinyTraining training(std::move(options));
  training.train(2, kGoodRate);
  training.session().recorder().flush(1'000'000'000);
  const Outcome asked = run({"stop", directory.path("run"), "--reason", "lunch"});
  EXPECT_EQ(asked.code, kExitOk) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("asked"));
  while (!training.session().has_request()) usleep(1000);
  EXPECT_EQ(training.session().obey()->message, "lunch");
  // Between two steps nobody answers.
  expect_failure(run({"stop", directory.path("run"), "--wait", "0.01"}), kExitError, "no answer");
  expect_failure(run({"stop", directory.path("run"), "--wait", "long"}), kExitUsage, "--wait");
}

TEST_F(StatusTest, CheckRunsActions) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("told");
  const Outcome outcome =
      run({"check", bad_, "--rule",
           "ExplodingTensor:actions=stop_training,command(argv=[touch," + file + "])"});
  EXPECT_EQ(outcome.code, kExitFindings);
  EXPECT_THAT(outcome.out, HasSubstr("nothing to stop"));
  EXPECT_THAT(outcome.out, HasSubstr("action command done: touch ran"));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(bad_ + "/control"));
  const Outcome json =
      run({"check", bad_, "--json", "--rule", "ExplodingTensor:actions=command(argv=[false])"});
  const auto answer = nlohmann::json::parse(json.out);
  EXPECT_EQ(answer["actions"][0]["result"], "failed");
  EXPECT_THAT(json.err, HasSubstr("false failed with exit code 1"));
}

TEST_F(StatusTest, CheckRefusesWhatIsNoAction) {
  expect_failure(run({"check", bad_, "--rule", "ExplodingTensor:actions=phone_home"}), kExitUsage,
                 "unknown action 'phone_home'");
  const Outcome outcome = run({"check", bad_, "--rule",
                               "ExplodingTensor:actions=webhook(url=https://h/SECRET,colour=red)"});
  expect_failure(outcome, kExitUsage, "webhook has no parameter 'colour'");
  EXPECT_THAT(outcome.err, Not(HasSubstr("SECRET")));
}

TEST_F(StatusTest, CheckStopsARunningTraining) {
  const TemporaryDirectory directory;
  SessionOptions options = session_options(directory.path("run"));
  options.control_interval_ms = 5;
  TinyTraining training(std::move(options));
  training.train(60, test_support::kBadRate);
  training.session().recorder().flush(1'000'000'000);
  run({"check", directory.path("run"), "--rule", "ExplodingTensor:actions=stop_training"});
  while (!training.session().has_request()) usleep(1000);
  EXPECT_EQ(training.session().obey()->rule, "ExplodingTensor");
}

}  // namespace
}  // namespace tensortap
