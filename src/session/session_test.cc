#include "session/session.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "session/tiny_training_for_test.h"

namespace tensortap {
namespace {

using test_support::kBadRate;
using test_support::kGoodRate;
using test_support::session_options;
using test_support::TemporaryDirectory;
using test_support::TinyTraining;
using testing::ElementsAreArray;
using testing::HasSubstr;

RuleSpec exploding_that_stops() { return {"ExplodingTensor", {}, {"stop_training"}}; }

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

std::vector<std::string> to_lines(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) lines.push_back(to_json(finding));
  return lines;
}

std::vector<Finding> check_recorded(const std::string& run, const std::vector<RuleSpec>& rules) {
  RuleEngine engine;
  for (const RuleSpec& rule : rules) engine.add(rule);
  std::vector<Finding> findings;
  engine.set_finding_handler(
      [&](std::size_t, const Finding& finding) { findings.push_back(finding); });
  engine.check_trial(*Trial::open(run));
  engine.finish();
  return findings;
}

// Fires as often as it is told to, at every step.
class ChattyRule : public Rule {
 public:
  explicit ChattyRule(int findings_a_step) : findings_a_step_(findings_a_step) {}
  void check(const StepView& step, std::vector<Finding>& findings) override {
    ++coverage_.checked_steps;
    coverage_.matched_tensors = 1;
    for (int i = 0; i < findings_a_step_; ++i) {
      Finding finding;
      finding.step = step.step;
      finding.observed = i;
      findings.push_back(finding);
    }
  }
  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "everything"; }

 private:
  int findings_a_step_;
  Coverage coverage_;
};

class ThrowingRule : public ChattyRule {
 public:
  ThrowingRule() : ChattyRule(0) {}
  void check(const StepView&, std::vector<Finding>&) override {
    throw std::runtime_error("a bug in a custom rule");
  }
};

struct SeenByRule {
  std::vector<double> losses;
  std::vector<std::string> gradients;
};

// Looks its step up in the live trial, as rules in Python do.
class TrialReadingRule : public ChattyRule {
 public:
  TrialReadingRule(std::shared_ptr<Trial> trial, SeenByRule& seen)
      : ChattyRule(0), trial_(std::move(trial)), seen_(seen) {}
  void check(const StepView& step, std::vector<Finding>&) override {
    const auto row = trial_->row("loss_output_0", step.step);
    seen_.losses.push_back(row ? row->statistics.mean : -1.0);
    TensorFilter filter;
    filter.collection = "gradients";
    seen_.gradients = trial_->tensor_names(filter);
  }

 private:
  std::shared_ptr<Trial> trial_;
  SeenByRule& seen_;
};

// Keeps warnings that a test provokes out of its output, and lets it read them.
class LogCapture {
 public:
  LogCapture() {
    set_log_sink([this](LogLevel, std::string_view message) { messages_.emplace_back(message); });
  }
  ~LogCapture() { set_log_sink({}); }
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

TEST(SessionTest, StopsInTheStepInWhichTheRuleFires) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run"), {exploding_that_stops()}));
  const int steps = training.train(1000, kBadRate);
  ASSERT_LT(steps, 1000);
  const auto& reason = training.session().stop_reason();
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->rule, "ExplodingTensor");
  EXPECT_EQ(reason->step, steps - 1);
  EXPECT_EQ(reason->step, training.session().recorder().step());
  EXPECT_EQ(*reason, training.session().findings().front());
}

TEST(SessionTest, HealthyTrainingFindsNothingAndSaysSo) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run"), {exploding_that_stops()}));
  EXPECT_EQ(training.train(50, kGoodRate), 50);
  EXPECT_EQ(read_json(directory.path("run/rules/ExplodingTensor.json"))["status"], "InProgress");
  training.session().close();
  const auto status = read_json(directory.path("run/rules/ExplodingTensor.json"));
  EXPECT_EQ(status["status"], "NoIssuesFound");
  EXPECT_EQ(status["finding_count"], 0);
  EXPECT_EQ(status["actions"], nlohmann::json({"stop_training"}));
  EXPECT_FALSE(std::filesystem::exists(directory.path("run/rules/ExplodingTensor.jsonl")));
}

TEST(SessionTest, FindingsInMemoryOnDiskAndAfterwardsAreTheSame) {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const std::vector<RuleSpec> rules = {
      {"ExplodingTensor", {}, {}},
      {"VanishingGradient", {{"threshold", "0.05"}}, {}},
      {"LossNotDecreasing", {{"num_steps", "3"}}, {}},
      {"VanishingGradient", {{"threshold", "0.2"}}, {}},
  };
  std::vector<Finding> live;
  {
    TinyTraining training(session_options(run, rules));
    training.train(60, kGoodRate);
    training.train(40, kBadRate);
    training.session().close();
    live = training.session().findings();
  }
  std::set<std::string> names;
  for (const Finding& finding : live) names.insert(finding.rule);
  // A comparison of nothing with nothing would prove nothing.
  ASSERT_THAT(names, testing::ElementsAre("ExplodingTensor", "LossNotDecreasing",
                                          "VanishingGradient", "VanishingGradient_2"));
  for (const std::string& name : names) {
    std::vector<Finding> of_rule;
    for (const Finding& finding : live) {
      if (finding.rule == name) of_rule.push_back(finding);
    }
    EXPECT_THAT(read_lines(run + "/rules/" + name + ".jsonl"), ElementsAreArray(to_lines(of_rule)));
    const auto status = read_json(run + "/rules/" + name + ".json");
    EXPECT_EQ(status["status"], "IssuesFound");
    EXPECT_EQ(status["finding_count"], of_rule.size());
  }
  EXPECT_THAT(to_lines(check_recorded(run, rules)), ElementsAreArray(to_lines(live)));
}

TEST(SessionTest, FirstFindingIsOnDiskBeforeTheNextStep) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run")));
  training.session().add_rule("chatty", std::make_unique<ChattyRule>(1), {});
  training.train(1, kGoodRate);
  const auto status = read_json(directory.path("run/rules/chatty.json"));
  EXPECT_EQ(status["finding_count"], 1);
  EXPECT_EQ(status["status"], "IssuesFound");
  EXPECT_EQ(read_lines(directory.path("run/rules/chatty.jsonl")).size(), 1u);
}

TEST(SessionTest, RunawayRuleDoesNotFillTheDisk) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run")));
  training.session().add_rule("chatty", std::make_unique<ChattyRule>(5'010), {});
  training.train(2, kGoodRate);
  training.session().close();
  const auto status = read_json(directory.path("run/rules/chatty.json"));
  EXPECT_EQ(read_lines(directory.path("run/rules/chatty.jsonl")).size(), 10'000u);
  EXPECT_EQ(status["finding_count"], 10'020);
  EXPECT_EQ(status["line_count"], 10'000);
  EXPECT_EQ(status["unwritten_finding_count"], 20);
  EXPECT_EQ(training.session().findings().size(), 10'000u);
  EXPECT_EQ(training.session().rule_reports().front().finding_count, 10'020u);
}

TEST(SessionTest, FindingsThatCannotBeWrittenAreKeptInMemory) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("run"));
  std::ofstream(directory.path("run/rules")) << "a file where a directory should be";
  const LogCapture log;
  TinyTraining training(session_options(directory.path("run"), {exploding_that_stops()}));
  EXPECT_LT(training.train(1000, kBadRate), 1000);
  training.session().close();
  EXPECT_FALSE(training.session().findings().empty());
  int warnings = 0;
  for (const std::string& message : log.messages()) {
    if (message.find("findings of a rule cannot be written") != std::string::npos) ++warnings;
  }
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(read_file(directory.path("run/rules")), "a file where a directory should be");
}

TEST(SessionTest, DryRunWritesNothing) {
  const TemporaryDirectory directory;
  SessionOptions options = session_options(directory.path("run"), {exploding_that_stops()});
  options.recorder.dry_run = true;
  {
    TinyTraining training(std::move(options));
    training.train(1000, kBadRate);
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path("run")));
}

TEST(SessionTest, ResumeGoesOnInTheSameFindingsFile) {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  for (const bool resume : {false, true}) {
    SessionOptions options = session_options(run);
    options.recorder.resume = resume;
    TinyTraining training(std::move(options));
    training.session().add_rule("chatty", std::make_unique<ChattyRule>(3), {});
    training.train(2, kGoodRate);
  }
  const std::vector<std::string> lines = read_lines(run + "/rules/chatty.jsonl");
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(nlohmann::json::parse(lines[5])["step"], 1);
  EXPECT_EQ(nlohmann::json::parse(lines[6])["step"], 2);
  const auto status = read_json(run + "/rules/chatty.json");
  EXPECT_EQ(status["finding_count"], 12);
  EXPECT_EQ(status["earlier_finding_count"], 6);
}

TEST(SessionTest, ResumeDropsALineThatAKillCutShort) {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  std::filesystem::create_directories(run + "/rules");
  std::ofstream(run + "/rules/chatty.jsonl") << "{\"step\": 0}\n{\"step\": 1, \"ten";
  TinyTraining training(session_options(run));
  training.session().add_rule("chatty", std::make_unique<ChattyRule>(1), {});
  training.train(1, kGoodRate);
  const std::vector<std::string> lines = read_lines(run + "/rules/chatty.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "{\"step\": 0}");
  EXPECT_TRUE(nlohmann::json::accept(lines[1]));
}

TEST(SessionTest, WorkersDoNotShareFindingsFiles) {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  for (const std::string worker : {"worker_0", "worker_1"}) {
    SessionOptions options = session_options(run);
    options.recorder.worker = worker;
    TinyTraining training(std::move(options));
    training.session().add_rule("chatty", std::make_unique<ChattyRule>(1), {});
    training.train(2, kGoodRate);
  }
  EXPECT_EQ(read_lines(run + "/rules/chatty.jsonl").size(), 2u);
  EXPECT_EQ(read_lines(run + "/rules/chatty.worker_1.jsonl").size(), 2u);
  EXPECT_EQ(read_json(run + "/rules/chatty.worker_1.json")["worker"], "worker_1");
}

TEST(SessionTest, RuleNamesCannotLeaveTheirDirectory) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run")));
  training.session().add_rule("../../escaped", std::make_unique<ChattyRule>(1), {});
  training.session().add_rule(".._.._escaped", std::make_unique<ChattyRule>(2), {});
  training.train(1, kGoodRate);
  EXPECT_EQ(read_lines(directory.path("run/rules/_._.._escaped.jsonl")).size(), 1u);
  EXPECT_EQ(read_lines(directory.path("run/rules/_._.._escaped_2.jsonl")).size(), 2u);
}

TEST(SessionTest, MisspeltRuleOrActionLeavesNoRunBehind) {
  const TemporaryDirectory directory;
  EXPECT_THROW(TinyTraining(session_options(directory.path("run"), {{"Exploding", {}, {}}})),
               Error);
  EXPECT_THROW(
      TinyTraining(session_options(directory.path("run"), {{"ExplodingTensor", {}, {"stop"}}})),
      Error);
  EXPECT_FALSE(std::filesystem::exists(directory.path("run")));
}

TEST(SessionTest, RuleAddedAfterTheFirstStepIsRefused) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run")));
  training.train(1, kGoodRate);
  EXPECT_THROW(training.session().add_rule("late", std::make_unique<ChattyRule>(1), {}), Error);
}

TEST(SessionTest, ThrowingRuleHarmsNeitherTheTrainingNorOtherRules) {
  const TemporaryDirectory directory;
  const LogCapture log;
  TinyTraining training(session_options(directory.path("run")));
  training.session().add_rule("broken", std::make_unique<ThrowingRule>(), {"stop_training"});
  training.session().add_rule("chatty", std::make_unique<ChattyRule>(1), {});
  EXPECT_EQ(training.train(3, kGoodRate), 3);
  training.session().close();
  const auto status = read_json(directory.path("run/rules/broken.json"));
  EXPECT_EQ(status["status"], "Error");
  EXPECT_THAT(status["report"].dump(), HasSubstr("a bug in a custom rule"));
  EXPECT_EQ(read_lines(directory.path("run/rules/chatty.jsonl")).size(), 3u);
}

TEST(SessionTest, RuleFindsItsStepInTheLiveTrial) {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  SeenByRule live;
  {
    TinyTraining training(session_options(run));
    training.session().add_rule(
        "reading", std::make_unique<TrialReadingRule>(training.session().live_trial(), live), {});
    training.train(20, kGoodRate);
    training.session().close();
    EXPECT_TRUE(training.session().live_trial()->has_ended());
  }
  const Column recorded = Trial::open(run)->column("loss_output_0", StatisticId::kMean);
  ASSERT_EQ(live.losses.size(), 20u);
  EXPECT_THAT(live.losses, ElementsAreArray(recorded.values));
  EXPECT_LT(live.losses.back(), live.losses.front());
  EXPECT_THAT(live.gradients, testing::ElementsAre("gradient/linear.weight"));
}

TEST(SessionTest, ForkedChildLeavesTheStatusAlone) {
  const TemporaryDirectory directory;
  TinyTraining training(session_options(directory.path("run"), {exploding_that_stops()}));
  training.train(1, kGoodRate);
  const pid_t child = fork();
  if (child == 0) {
    training.session().close();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_json(directory.path("run/rules/ExplodingTensor.json"))["status"], "InProgress");
  training.train(1, kGoodRate);
  training.session().close();
  EXPECT_EQ(Trial::open(directory.path("run"))->steps().size(), 2u);
}

}  // namespace
}  // namespace tensortap
