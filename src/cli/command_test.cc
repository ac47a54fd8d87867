// The whole program but its main(), on runs that a real session recorded.
#include "cli/command.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program_for_test.h"

namespace tensortap {
namespace {

using test_support::expect_failure;
using test_support::Outcome;
using test_support::ProgramTest;
using test_support::run;
using test_support::session_options;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace fs = std::filesystem;

nlohmann::json json(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }
nlohmann::json answer(std::vector<std::string> arguments) {
  return json(run(std::move(arguments)));
}

TEST_F(ProgramTest, SaysWhatItIs) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, kExitOk);
  EXPECT_THAT(version.out, testing::MatchesRegex("tensortap [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, kExitOk);
  for (const char* name : {"ls", "show", "check", "rules", "verify"}) {
    EXPECT_THAT(help.out, HasSubstr(name));
    const Outcome command_help = run({name, "--help"});
    EXPECT_EQ(command_help.code, kExitOk);
    EXPECT_THAT(command_help.out, HasSubstr(std::string("  tensortap ") + name)) << "no example";
  }
}

TEST_F(ProgramTest, BadUsageIsOneLineAndExitCode2) {
  expect_failure(run({"chek", good_}), kExitUsage,
                 "unknown command 'chek' (did you mean 'check'?)");
  expect_failure(run({}), kExitUsage, "tensortap --help");
  expect_failure(run({"ls"}), kExitUsage, "RUN is required");
  expect_failure(run({"ls", good_, "--nosuch"}), kExitUsage, "--nosuch");
  expect_failure(run({"ls", good_, "--tensors", "(unclosed"}), kExitUsage, "(unclosed");
  expect_failure(run({"show", good_, "loss_output_0", "--steps", "5"}), kExitUsage, "A:B");
  expect_failure(run({"show", good_, "loss_output_0", "--steps", "a:5"}), kExitUsage, "'a:5'");
  expect_failure(run({"show", good_, "loss_output_0", "--steps", "9:3"}), kExitUsage, "9:3");
  expect_failure(run({"show", good_, "loss_output_0", "--mode", "VAL"}), kExitUsage, "TRAIN, EVAL");
  expect_failure(run({"show", good_, "loss_output_0", "--csv", "--json"}), kExitUsage, "exclude");
  expect_failure(run({"show", good_, "loss_output_0", "--stat", "meen"}), kExitUsage,
                 "unknown statistic 'meen' (did you mean 'mean'");
  expect_failure(run({"check", good_, "--rule", "Exploding"}), kExitUsage, "ExplodingTensor");
  expect_failure(run({"check", good_, "--rule", "VanishingGradient:treshold=1"}), kExitUsage,
                 "threshold");
  expect_failure(run({"check", good_, "--rule", "VanishingGradient:threshold=abc"}), kExitUsage,
                 "abc");
  expect_failure(run({"check", good_}), kExitUsage, "--rule is required");
  expect_failure(run({"rules", "NoSuchRule"}), kExitUsage, "NoSuchRule");
}

TEST_F(ProgramTest, MissingAndWrongRunsAreOneLineAndExitCode1) {
  const std::string missing = directory_->path("missing");
  const std::string file = directory_->path("file");
  std::ofstream(file) << "no run";
  const std::string empty = directory_->path("empty");
  fs::create_directory(empty);
  for (const std::string command : {"ls", "verify"}) {
    expect_failure(run({command, missing}), kExitError, missing);
    expect_failure(run({command, file}), kExitError, "this is a file: " + file);
    expect_failure(run({command, empty}), kExitError, empty);
  }
  expect_failure(run({"show", missing, "loss"}), kExitError, missing);
  expect_failure(run({"check", missing, "--rule", "ExplodingTensor"}), kExitError, missing);
  EXPECT_FALSE(fs::exists(missing));
}

TEST_F(ProgramTest, LsShowsTheRun) {
  const Outcome text = run({"ls", good_});
  EXPECT_EQ(text.code, kExitOk) << text.err;
  for (const char* part : {"tiny 1.0", "ended", "30 (TRAIN 29, EVAL 1)", "losses 1", "gradients 1",
                           "ExplodingTensor: NoIssuesFound, 0 findings", "float32 [8]",
                           "gradient/linear.weight", "30 (0 to 29)"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const nlohmann::json json = answer({"ls", good_, "--json"});
  EXPECT_EQ(json["has_ended"], true);
  EXPECT_EQ(json["session_count"], 1);
  EXPECT_EQ(json["step_count"], 30);
  EXPECT_EQ(json["steps"], nlohmann::json({{"TRAIN", 29}, {"EVAL", 1}}));
  EXPECT_EQ(json["collections"]["weights"], 1);
  EXPECT_EQ(json["tensor_count"], 4);
  EXPECT_EQ(json["run_id"].get<std::string>().size(), 32u);
  EXPECT_EQ(json["rules"][0]["status"], "NoIssuesFound");
  EXPECT_THAT(run({"ls", bad_}).out, HasSubstr("ExplodingTensor: IssuesFound, "));
}

TEST_F(ProgramTest, LsFiltersTensors) {
  const nlohmann::json json = answer({"ls", good_, "--tensors", "^linear", "--json"});
  ASSERT_EQ(json["tensors"].size(), 1u);
  EXPECT_EQ(json["tensors"][0]["name"], "linear.weight");
  EXPECT_EQ(json["tensors"][0]["collections"], nlohmann::json({"weights"}));
  EXPECT_EQ(json["tensors"][0]["layout"], "float32 [8]");
}

TEST_F(ProgramTest, LsTellsHowARunWasResumed) {
  const std::string path = directory_->path("resumed");
  for (const bool resume : {false, true}) {
    SessionOptions options = session_options(path);
    options.recorder.resume = resume;
    Session session(options, test_support::tiny_collections());
    for (int i = 0; i < 3; ++i) {
      session.recorder().begin_step();
      session.recorder().record_scalar("loss", i);
      session.recorder().end_step();
    }
  }
  EXPECT_THAT(run({"ls", path}).out, AllOf(HasSubstr("worker_0 start: steps 0 to 2"),
                                           HasSubstr("worker_0 resume: steps 3 to 5")));
  const nlohmann::json sessions = answer({"ls", path, "--json"})["sessions"];
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[1]["first_step"], 3);
  EXPECT_EQ(sessions[1]["session"], 1);
}

TEST_F(ProgramTest, LsCutsLongListsAndEscapesNames) {
  const std::string path = directory_->path("many");
  {
    SessionOptions options = session_options(path);
    Session session(options, test_support::tiny_collections());
    session.recorder().begin_step();
    for (int i = 0; i < 60; ++i) {
      session.recorder().record_scalar("scalar\x1b[2J_" + std::to_string(i), i);
    }
    session.recorder().end_step();
  }
  const Outcome cut = run({"ls", path});
  EXPECT_THAT(cut.out, AllOf(HasSubstr("… and 20 more tensors"), HasSubstr("scalar\\x1b[2J_0"),
                             Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run({"ls", path, "--all"}).out,
              AllOf(HasSubstr("_59"), Not(HasSubstr("more tensors"))));
  EXPECT_EQ(answer({"ls", path, "--json"})["tensors"].size(), 60u);
}

TEST_F(ProgramTest, LsOfARunWithoutEndMark) {
  const std::string copy = copy_of_good("unended");
  fs::remove_all(copy + "/end");
  EXPECT_THAT(run({"ls", copy}).out, HasSubstr("no end mark: still running or killed"));
  EXPECT_EQ(answer({"ls", copy, "--json"})["has_ended"], false);
}

TEST_F(ProgramTest, ShowGivesTheSameNumbersInEveryShape) {
  const auto trial = Trial::open(good_);
  const Column column = trial->column("gradient/linear.weight", StatisticId::kL2);
  const Outcome csv =
      run({"show", good_, "gradient/linear.weight", "--stat", "l2", "--stat", "abs_max", "--csv"});
  std::istringstream lines(csv.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "step,l2,abs_max");
  for (std::size_t i = 0; i < column.steps.size(); ++i) {
    std::getline(lines, line);
    const std::size_t comma = line.find(',');
    EXPECT_EQ(std::stoll(line.substr(0, comma)), column.steps[i]);
    EXPECT_EQ(std::stod(line.substr(comma + 1)), column.values[i]);
  }
  EXPECT_FALSE(std::getline(lines, line));
  const nlohmann::json json =
      answer({"show", good_, "gradient/linear.weight", "--stat", "l2", "--json"});
  EXPECT_EQ(json["statistics"]["l2"].get<std::vector<double>>(), column.values);
  EXPECT_EQ(json["steps"].get<std::vector<std::int64_t>>(), column.steps);
}

TEST_F(ProgramTest, ShowPicksStepsAndModes) {
  const auto steps = [&](std::vector<std::string> extra) {
    std::vector<std::string> arguments = {"show", good_, "loss_output_0", "--json"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    return answer(arguments)["steps"].get<std::vector<std::int64_t>>();
  };
  EXPECT_EQ(steps({"--steps", "5:8"}), (std::vector<std::int64_t>{5, 6, 7}));
  EXPECT_EQ(steps({"--steps", "28:"}), (std::vector<std::int64_t>{28, 29}));
  EXPECT_EQ(steps({"--steps", ":2"}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(steps({"--mode", "eval"}), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(steps({"--mode", "TRAIN"}).size(), 29u);
}

TEST_F(ProgramTest, ShowDrawsATable) {
  const Outcome weight = run({"show", good_, "linear.weight"});
  EXPECT_EQ(weight.code, kExitOk) << weight.err;
  EXPECT_THAT(weight.out, AllOf(StartsWith("linear.weight  float32 [8]\nmean "), HasSubstr("█"),
                                HasSubstr("nan_count"), HasSubstr("EVAL")));
  const Outcome loss = run({"show", good_, "loss_output_0"});
  EXPECT_THAT(loss.out, AllOf(HasSubstr("mean"), Not(HasSubstr("std"))))
      << "one value has no spread";
}

TEST_F(ProgramTest, ShowShowsTexts) {
  EXPECT_THAT(run({"show", good_, "note"}).out, HasSubstr("  29  a text\\nof two lines\n"));
  EXPECT_EQ(answer({"show", good_, "note", "--json"})["texts"]["29"], "a text\nof two lines");
}

TEST_F(ProgramTest, ShowHelpsWithNames) {
  expect_failure(run({"show", good_, "linear.wieght"}), kExitError, "did you mean 'linear.weight'");
  expect_failure(run({"show", good_, "^(loss|grad).*0|t$"}), kExitError,
                 "as a regular expression it matches 3 tensors");
  expect_failure(run({"show", good_, "note", "--worker", "worker_9"}), kExitError, "worker_0");
}

TEST_F(ProgramTest, NotFiniteNumbersAreStringsInJson) {
  const Outcome outcome = run({"show", bad_, "loss_output_0", "--stat", "mean", "--json"});
  EXPECT_EQ(json(outcome)["statistics"]["mean"].back(), "NaN") << outcome.out;
}

TEST_F(ProgramTest, CheckTellsFindingsByItsExitCode) {
  const Outcome nothing = run({"check", good_, "--rule", "ExplodingTensor"});
  EXPECT_EQ(nothing.code, kExitOk) << nothing.err;
  EXPECT_THAT(nothing.out, StartsWith("ExplodingTensor: NoIssuesFound"));
  EXPECT_EQ(nothing.err, "");
  const Outcome found = run({"check", bad_, "--rule", "ExplodingTensor"});
  EXPECT_EQ(found.code, kExitFindings) << found.err;
  EXPECT_THAT(found.out,
              AllOf(StartsWith("ExplodingTensor: IssuesFound, "), HasSubstr("loss_output_0"),
                    HasSubstr(std::to_string(bad_steps_ - 1))));
}

TEST_F(ProgramTest, CheckGivesTheFindingsOfTheTraining) {
  const Outcome outcome = run({"check", bad_, "--rule", "exploding_tensor", "--json"});
  EXPECT_EQ(outcome.code, kExitFindings);
  std::vector<nlohmann::json> live;
  std::ifstream file(bad_ + "/rules/ExplodingTensor.jsonl");
  for (std::string line; std::getline(file, line);) live.push_back(nlohmann::json::parse(line));
  ASSERT_FALSE(live.empty());
  EXPECT_EQ(json(outcome)["rules"][0]["findings"], nlohmann::json(live));
}

TEST_F(ProgramTest, CheckLooksOnlyAtTheStepsAskedFor) {
  const Outcome outcome = run({"check", bad_, "--rule", "ExplodingTensor", "--steps", "0:3"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("in 3 steps"));
}

TEST_F(ProgramTest, CheckShows20FindingsOfARuleUnlessAskedForAll) {
  const std::vector<std::string> base = {"check", good_, "--rule",
                                         "VanishingGradient:threshold=1e9"};
  const Outcome cut = run(base);
  EXPECT_EQ(cut.code, kExitFindings);
  EXPECT_THAT(cut.out, HasSubstr("… and 9 more findings (--all shows them)"));
  std::vector<std::string> all = base;
  all.push_back("--all");
  const Outcome whole = run(all);
  EXPECT_THAT(whole.out, Not(HasSubstr("more findings")));
  EXPECT_EQ(std::count(whole.out.begin(), whole.out.end(), '\n'), 2 + 29);
}

TEST_F(ProgramTest, CheckWarnsLoudlyOfARuleWithoutData) {
  const Outcome outcome =
      run({"check", good_, "--rule", "ExplodingTensor:tensor_regex=nosuchtensor", "--json"});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.err, HasSubstr("WARNING: rule ExplodingTensor had NO DATA"));
  EXPECT_EQ(json(outcome)["rules"][0]["report"]["status"], "NoData");
}

TEST_F(ProgramTest, CheckFollowsToTheEndMark) {
  const Outcome outcome = run({"check", bad_, "--rule", "ExplodingTensor", "--follow", "--json"});
  EXPECT_EQ(outcome.code, kExitFindings);
  std::istringstream lines(outcome.out);
  std::vector<nlohmann::json> parsed;
  for (std::string line; std::getline(lines, line);) parsed.push_back(nlohmann::json::parse(line));
  ASSERT_GE(parsed.size(), 2u);
  EXPECT_EQ(parsed.front()["step"], bad_steps_ - 1);
  EXPECT_EQ(parsed.back()["rules"][0]["report"]["status"], "IssuesFound");
}

TEST_F(ProgramTest, RulesDocumentsWhatIsRegistered) {
  const Outcome list = run({"rules"});
  for (const char* name : {"VanishingGradient", "ExplodingTensor", "LossNotDecreasing"}) {
    EXPECT_THAT(list.out, HasSubstr(name));
  }
  EXPECT_THAT(run({"rules", "vanishing_gradient"}).out,
              AllOf(StartsWith("VanishingGradient: "), HasSubstr("threshold"), HasSubstr("1e-7"),
                    HasSubstr("gradients")));
  const nlohmann::json json = answer({"rules", "--json"});
  ASSERT_GE(json.size(), 3u);
  EXPECT_TRUE(json[0]["parameters"].is_array());
}

}  // namespace
}  // namespace tensortap
