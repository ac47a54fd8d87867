#include "actions/runner.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace tensortap {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

Finding finding_at_step(std::int64_t step) {
  Finding finding;
  finding.rule = "Rule";
  finding.step = step;
  finding.tensor = "a\n\"b\"; rm -rf $HOME";
  finding.message = "It went wrong.";
  return finding;
}

// A runner whose outcomes are kept, and whose warnings are not printed.
class RunnerTest : public testing::Test {
 protected:
  RunnerTest() {
    set_log_sink([this](LogLevel, std::string_view message) { log_ << message << "\n"; });
    runner_.set_first_pause(milliseconds(1));
    runner_.set_outcome_handler(
        [this](const ActionOutcome& outcome) { outcomes_.push_back(outcome); });
    std::string pattern = (std::filesystem::temp_directory_path() / "tensortap-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~RunnerTest() override {
    set_log_sink({});
    std::filesystem::remove_all(directory_);
  }

  // As one JSON text, since quoting is not what is tested here.
  static std::string shell(const std::string& script, const std::string& more = "") {
    return nlohmann::json{{"name", "command"}, {"argv", {"sh", "-c", script}}}.dump().insert(1,
                                                                                             more);
  }
  std::string content(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::vector<ActionOutcome> outcomes_;
  std::ostringstream log_;
  std::string directory_;
  ActionRunner runner_;
};

TEST_F(RunnerTest, ActsAtTheFirstFindingAndAgainAfterTheCoolDown) {
  std::vector<std::int64_t> stops;
  ActionContext context;
  context.request_stop = [&](const Finding& finding) { stops.push_back(finding.step); };
  runner_.set_context(context);
  runner_.add_rule({"stop_training(cooldown=10)"});
  runner_.add_rule({});
  for (std::int64_t step = 5; step < 30; ++step) {
    runner_.on_finding(0, finding_at_step(step));
    runner_.on_finding(0, finding_at_step(step));
    runner_.on_finding(1, finding_at_step(step));
  }
  EXPECT_THAT(stops, ElementsAre(5, 15, 25));
  EXPECT_EQ(outcomes_.size(), 3u);
  EXPECT_EQ(outcomes_[1].finding.step, 15);
}

TEST_F(RunnerTest, NoCoolDownActsAtEveryFinding) {
  int count = 0;
  ActionContext context;
  context.request_stop = [&](const Finding&) { ++count; };
  runner_.set_context(context);
  runner_.add_rule({"stop_training(cooldown=0)"});
  for (int i = 0; i < 3; ++i) runner_.on_finding(0, finding_at_step(1));
  EXPECT_EQ(count, 3);
}

TEST_F(RunnerTest, CommandGetsTheFindingAndNoShellReadsIt) {
  ActionContext context;
  context.run = "/runs/a";
  runner_.set_context(context);
  runner_.add_rule({shell("cat > " + directory_ + "/in; env > " + directory_ + "/env")});
  runner_.on_finding(0, finding_at_step(3));
  runner_.close(milliseconds(5000));
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].result, ActionResult::kDone) << outcomes_[0].detail;
  const auto document = nlohmann::json::parse(content("in"));
  EXPECT_EQ(document["run"], "/runs/a");
  EXPECT_EQ(document["finding"]["step"], 3);
  EXPECT_EQ(document["finding"]["tensor"], "a\n\"b\"; rm -rf $HOME");
  EXPECT_THAT(content("env"), HasSubstr("TENSORTAP_FINDING_TENSOR=a \"b\"; rm -rf $HOME\n"));
  EXPECT_THAT(content("env"), HasSubstr("TENSORTAP_FINDING_STEP=3\n"));
}

TEST_F(RunnerTest, ProgramsThatFailAreSaidToHaveFailed) {
  runner_.add_rule({shell("exit 3"), "command(argv=[/no/such/program])",
                    shell("sleep 60 & wait", R"("timeout": 0.05, )")});
  runner_.on_finding(0, finding_at_step(0));
  runner_.close(milliseconds(5000));
  ASSERT_EQ(outcomes_.size(), 3u);
  EXPECT_THAT(outcomes_[0].detail, HasSubstr("sh failed with exit code 3"));
  EXPECT_THAT(outcomes_[1].detail, HasSubstr("/no/such/program"));
  EXPECT_THAT(outcomes_[2].detail, HasSubstr("it took longer than 0.05 s"));
  for (const ActionOutcome& outcome : outcomes_) {
    EXPECT_EQ(outcome.result, ActionResult::kFailed);
    EXPECT_EQ(outcome.tries, 1);
  }
  EXPECT_THAT(log_.str(), HasSubstr("action command of rule Rule failed: sh failed"));
}

TEST_F(RunnerTest, AClosedPortIsTriedAgainAndThenGivenUp) {
  runner_.add_rule({"webhook(url=http://127.0.0.1:1/SECRET,retries=2)", shell("true")});
  runner_.on_finding(0, finding_at_step(0));
  runner_.close(milliseconds(5000));
  ASSERT_EQ(outcomes_.size(), 2u);
  // The one that works does not wait for the other's pauses.
  EXPECT_EQ(outcomes_[0].action, "command");
  EXPECT_EQ(outcomes_[1].action, "webhook");
  EXPECT_EQ(outcomes_[1].result, ActionResult::kFailed);
  EXPECT_EQ(outcomes_[1].tries, 3);
  EXPECT_THAT(to_json(outcomes_[1]), testing::Not(HasSubstr("SECRET")));
  EXPECT_THAT(log_.str(), testing::Not(HasSubstr("SECRET")));
}

TEST_F(RunnerTest, ClosingWaitsNoLongerThanItWasTold) {
  runner_.add_rule({shell("sleep 60"), shell("true")});
  runner_.on_finding(0, finding_at_step(0));
  const auto begin = std::chrono::steady_clock::now();
  runner_.close(milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  ASSERT_EQ(outcomes_.size(), 2u);
  EXPECT_EQ(outcomes_[0].result, ActionResult::kAbandoned);
  EXPECT_THAT(outcomes_[0].detail, HasSubstr("the training ended"));
  EXPECT_EQ(outcomes_[1].result, ActionResult::kAbandoned);
  EXPECT_EQ(outcomes_[1].tries, 0);
}

TEST_F(RunnerTest, AFullQueueDropsAndSaysSo) {
  runner_.add_rule({shell("sleep 60", R"("cooldown": 0, )")});
  for (std::size_t i = 0; i < ActionRunner::kMaxQueued + 5; ++i) {
    runner_.on_finding(0, finding_at_step(0));
  }
  runner_.close(milliseconds(0));
  std::size_t dropped = 0;
  for (const ActionOutcome& outcome : outcomes_) {
    if (outcome.result == ActionResult::kDropped) ++dropped;
  }
  EXPECT_EQ(outcomes_.size(), ActionRunner::kMaxQueued + 5);
  EXPECT_GE(dropped, 4u);  // one may have been taken out of the queue already
  EXPECT_LE(dropped, 5u);
}

}  // namespace
}  // namespace tensortap
