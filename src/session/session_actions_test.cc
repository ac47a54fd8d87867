// Actions of a session, and requests that other processes leave in the run's control/.
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "session/control.h"
#include "session/tiny_training_for_test.h"

namespace tensortap {
namespace {

using test_support::kBadRate;
using test_support::kGoodRate;
using test_support::session_options;
using test_support::TemporaryDirectory;
using test_support::TinyTraining;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// Fires at one step.
class FiresAt : public Rule {
 public:
  explicit FiresAt(std::int64_t step) : step_(step) {}
  void check(const StepView& step, std::vector<Finding>& findings) override {
    ++coverage_.checked_steps;
    coverage_.matched_tensors = 1;
    if (step.step == step_) findings.push_back(finding_at(step, "loss", "worker_0"));
  }
  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "everything"; }

 private:
  std::int64_t step_;
  Coverage coverage_;
};

class SessionActionsTest : public testing::Test {
 protected:
  SessionActionsTest() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~SessionActionsTest() override { set_log_sink({}); }

  std::string run_path(const std::string& name = "") const {
    return directory_.path("run/" + name);
  }
  SessionOptions options(std::int64_t interval = 1) const {
    SessionOptions options = session_options(directory_.path("run"));
    options.control_interval_ms = 2;
    SaveConfigMode mode;
    mode.save_interval = interval;
    options.recorder.save_config = SaveConfig::for_all_modes(mode);
    return options;
  }
  // Steps until the training stops, at most 2000.
  static int train_until_stopped(TinyTraining& training) {
    int steps = 0;
    while (steps < 2000 && !training.session().obey()) {
      steps += training.train(1, kGoodRate);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return steps;
  }

  const TemporaryDirectory directory_;
};

TEST_F(SessionActionsTest, ARequestStopsTheTrainingAndIsAnswered) {
  // Nothing is due at these steps: a request must not wait for one that is.
  TinyTraining training(options(1'000'000));
  training.session().add_rule("silent", std::make_unique<FiresAt>(-1), {});
  training.train(3, kGoodRate);
  const auto storage = open_storage(run_path());
  ControlRequest request;
  request.finding.message = "enough\nof it";
  const std::string id = write_request(*storage, request);
  EXPECT_THAT(answers(*storage, id), SizeIs(0));
  EXPECT_LT(train_until_stopped(training), 2000);
  const auto& reason = training.session().stop_reason();
  EXPECT_EQ(reason->message, "enough\nof it");
  EXPECT_EQ(reason->rule, "");
  EXPECT_EQ(reason->step, training.session().recorder().step());
  training.session().close();
  EXPECT_THAT(answers(*storage, id), ElementsAre("worker_0"));
  EXPECT_EQ(read_json(run_path("rules/silent.json"))["status"], "Stopped");
}

TEST_F(SessionActionsTest, AFindingOfAnotherProcessStopsInItsName) {
  TinyTraining training(options());
  training.session().add_rule("silent", std::make_unique<FiresAt>(-1), {});
  training.train(1, kGoodRate);
  ControlRequest request;
  request.finding = {.rule = "Beside",
                     .tensor = "loss",
                     .worker = "worker_0",
                     .step = 17,
                     .mode = Mode::kEval,
                     .mode_step = 3,
                     .statistic = "mean",
                     .observed = 2.5,
                     .threshold = -std::numeric_limits<double>::infinity(),
                     .severity = Severity::kCritical,
                     .message = "too much"};
  write_request(*open_storage(run_path()), request);
  EXPECT_LT(train_until_stopped(training), 2000);
  EXPECT_EQ(*training.session().stop_reason(), request.finding);
  training.session().close();
  // Nobody interrupted the rule of this process: its training is over.
  EXPECT_EQ(read_json(run_path("rules/silent.json"))["status"], "NoIssuesFound");
}

TEST_F(SessionActionsTest, RequestsOfEarlierSessionsAndNonsenseAreLeftAlone) {
  const auto storage = open_storage(run_path());
  write_request(*storage, {});
  TinyTraining training(options());
  storage->put("control/request-a.json", "{\"request\": \"stop");
  storage->put("control/request-b.json", "[\"stop\"]");
  storage->put("control/request-c.json", R"({"request": "format_the_disk"})");
  storage->put("control/request-d.json", R"({"request": "capture_more", "steps": "all"})");
  storage->put("control/request-.json", R"({"request": "stop"})");
  for (int i = 0; i < 30; ++i) {
    training.train(1, kGoodRate);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(training.session().obey());
}

TEST_F(SessionActionsTest, ARequestForMoreDetailIsObeyed) {
  TinyTraining training(options(1'000'000));
  training.train(3, kGoodRate);
  ControlRequest request;
  request.kind = ControlRequest::Kind::kCaptureMore;
  request.wish = {{"weights"}, 2, true};
  write_request(*open_storage(run_path()), request);
  while (!training.session().has_request()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  training.session().obey();
  training.train(10, kGoodRate);
  training.session().close();
  const auto trial = Trial::open(run_path());
  EXPECT_THAT(trial->tensor_steps("linear.weight"), ElementsAre(0, 3, 4));
  EXPECT_THAT(trial->tensor_steps("loss_output_0"), ElementsAre(0));
}

TEST_F(SessionActionsTest, CaptureMoreRecordsTheStepsAfterTheFinding) {
  SessionOptions given = options(4);
  TinyTraining training(given);
  training.session().add_rule("fires", std::make_unique<FiresAt>(8), {"capture_more(steps=3)"});
  training.train(20, kGoodRate);
  training.session().close();
  EXPECT_THAT(Trial::open(run_path())->tensor_steps("linear.weight"),
              ElementsAre(0, 4, 8, 9, 10, 11, 12, 16));
  const auto lines = read_lines(run_path("rules/fires.actions.jsonl"));
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0]["action"], "capture_more");
  EXPECT_EQ(lines[0]["result"], "done");
  EXPECT_EQ(lines[0]["step"], 8);
}

TEST_F(SessionActionsTest, ACheckpointIsSavedAtTheBorderBeforeTheStop) {
  TinyTraining training(options());
  std::vector<std::string> order;
  training.session().add_function("checkpoint", [&](const Finding& finding) {
    EXPECT_FALSE(training.session().recorder().in_step());
    order.push_back("saved at " + std::to_string(finding.step));
  });
  training.session().add_rule("fires", std::make_unique<FiresAt>(5),
                              {"stop_training", "save_checkpoint"});
  EXPECT_EQ(training.train(20, kGoodRate), 6);
  EXPECT_THAT(order, ElementsAre("saved at 5"));
  training.session().close();
  EXPECT_THAT(read_lines(run_path("rules/fires.actions.jsonl")), SizeIs(2));
}

TEST_F(SessionActionsTest, ACheckpointThatFailsOrIsMissingHarmsNothing) {
  TinyTraining training(options());
  training.session().add_function("bad",
                                  [](const Finding&) { throw std::runtime_error("no disk"); });
  training.session().add_rule("fires", std::make_unique<FiresAt>(2),
                              {"save_checkpoint(function=bad)", "save_checkpoint(function=none)"});
  EXPECT_EQ(training.train(5, kGoodRate), 5);
  training.session().close();
  const auto lines = read_lines(run_path("rules/fires.actions.jsonl"));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0]["detail"], HasSubstr("'none'"));
  EXPECT_EQ(lines[1]["result"], "failed");
  EXPECT_EQ(lines[1]["detail"], "no disk");
}

TEST_F(SessionActionsTest, NoSecretIsStored) {
  TinyTraining training(options());
  training.session().add_rule("fires", std::make_unique<FiresAt>(1),
                              {"webhook(url=http://user:SECRET@127.0.0.1:1/SECRET,retries=0)"});
  training.train(3, kGoodRate);
  training.session().close();
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_path())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    std::stringstream content;
    content << file.rdbuf();
    EXPECT_EQ(content.str().find("SECRET"), std::string::npos) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 5);
  EXPECT_EQ(read_json(run_path("rules/fires.json"))["actions"][0],
            "webhook(retries=0,url=http://127.0.0.1:1/…)");
  EXPECT_EQ(read_lines(run_path("rules/fires.actions.jsonl")).at(0)["result"], "failed");
}

TEST_F(SessionActionsTest, StatusesAreRefreshedWhileNothingIsFound) {
  SessionOptions given = options();
  given.status_interval_ns = 0;
  TinyTraining training(std::move(given));
  training.session().add_rule("silent", std::make_unique<FiresAt>(-1), {});
  training.train(7, kGoodRate);
  const auto status = read_json(run_path("rules/silent.json"));
  EXPECT_EQ(status["status"], "InProgress");
  EXPECT_EQ(status["report"]["coverage"]["checked_steps"], 7);
}

}  // namespace
}  // namespace tensortap
