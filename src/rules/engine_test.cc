#include "rules/engine.h"

#include <algorithm>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "rules/registry.h"
#include "trial/run_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Finds something at every step whose number it likes; fails at one.
class TestRule : public Rule {
 public:
  explicit TestRule(std::int64_t fails_at = -1, std::vector<std::int64_t>* seen = nullptr)
      : fails_at_(fails_at), seen_(seen) {}
  void check(const StepView& step, std::vector<Finding>& findings) override {
    if (seen_ != nullptr) seen_->push_back(step.step);
    ++coverage_.checked_steps;
    coverage_.matched_tensors = 1;
    if (step.step % 2 == 1) {
      Finding finding;
      finding.step = step.step;
      findings.push_back(finding);
    }
    if (step.step == fails_at_) throw std::runtime_error("out of ideas");
  }
  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "anything"; }

 private:
  std::int64_t fails_at_;
  std::vector<std::int64_t>* seen_;
  Coverage coverage_;
};

std::shared_ptr<MemoryRun> healthy_run(std::int64_t step_count) {
  auto run = std::make_shared<MemoryRun>();
  for (std::int64_t step = 0; step < step_count; ++step) {
    run->write(global_step(step), {{"loss", {1.0}, {"losses"}}});
  }
  return run;
}

TEST(RuleEngine, ARuleThatThrowsIsSwitchedOffAndTheOthersGoOn) {
  RuleEngine engine;
  engine.add("good", std::make_unique<TestRule>());
  engine.add("bad", std::make_unique<TestRule>(3));
  std::vector<std::string> handled;
  engine.set_finding_handler([&](std::size_t index, const Finding& finding) {
    handled.push_back(std::to_string(index) + finding.rule + std::to_string(finding.step));
  });
  Trial trial(healthy_run(6));
  EXPECT_EQ(engine.check_trial(trial), 4u);
  engine.finish();
  EXPECT_THAT(handled, ElementsAre("0good1", "1bad1", "0good3", "0good5"));
  const auto reports = engine.reports();
  EXPECT_EQ(reports[0].status, RuleStatus::kIssuesFound);
  EXPECT_EQ(reports[0].finding_count, 3u);
  EXPECT_EQ(reports[0].first_finding->step, 1);
  EXPECT_EQ(reports[1].status, RuleStatus::kError);
  EXPECT_EQ(reports[1].message, "at step 3: out of ideas");
  EXPECT_EQ(reports[1].finding_count, 1u);
  EXPECT_EQ(reports[1].coverage.checked_steps, 4u);
}

TEST(RuleEngine, NamesAreUniqueAndStatusesSettleAtTheEnd) {
  RuleEngine engine;
  EXPECT_EQ(engine.add({"vanishing_gradient", {{"threshold", "1e-3"}}, {}}), 0u);
  EXPECT_EQ(engine.add({"VanishingGradient", {}, {}}), 1u);
  EXPECT_EQ(engine.add({"ExplodingTensor", {}, {}}), 2u);
  Trial trial(healthy_run(2));
  engine.check_trial(trial);
  EXPECT_EQ(engine.reports()[2].status, RuleStatus::kInProgress);
  engine.finish();
  const auto reports = engine.reports();
  EXPECT_EQ(reports[0].name, "VanishingGradient");
  EXPECT_EQ(reports[1].name, "VanishingGradient_2");
  EXPECT_EQ(reports[0].status, RuleStatus::kNoData);
  EXPECT_EQ(reports[2].status, RuleStatus::kNoIssuesFound);
  EXPECT_EQ(reports[0].parameters.at("threshold"), "1e-3");
  EXPECT_EQ(reports[1].parameters.at("threshold"), "1e-7");

  const auto json = nlohmann::json::parse(to_json(reports[0]));
  EXPECT_EQ(json.at("status"), "NoData");
  EXPECT_TRUE(json.at("first_finding").is_null());
  EXPECT_EQ(json.at("parameters").at("start_step"), "0");
  EXPECT_EQ(json.at("coverage").at("skipped_steps"), 2);
}

TEST(RuleEngine, NoDataSaysWhy) {
  const auto message = [](const RuleSpec& spec, const std::shared_ptr<MemoryRun>& run) {
    RuleEngine engine;
    engine.add(spec);
    Trial trial(run);
    engine.check_trial(trial);
    engine.finish();
    EXPECT_EQ(engine.reports()[0].status, RuleStatus::kNoData);
    return engine.reports()[0].message;
  };
  EXPECT_EQ(
      message({"VanishingGradient", {}, {}}, healthy_run(3)),
      "no tensor matched collection gradients; it is not among the saved collections: losses");
  EXPECT_EQ(message({"VanishingGradient", {}, {}}, healthy_run(0)), "the run has no complete step");
  EXPECT_EQ(message({"ExplodingTensor", {{"tensor_regex", "^q"}}, {}}, healthy_run(1)),
            "no tensor matched regex '^q'; the saved collections are: losses");
  EXPECT_THAT(message({"ExplodingTensor", {{"start_step", "10"}}, {}}, healthy_run(3)),
              HasSubstr("none of the 3 steps is one that the rule judges"));
  auto bare = std::make_shared<MemoryRun>();
  bare->write(global_step(0), {{"x", {1.0}}});
  EXPECT_EQ(message({"VanishingGradient", {}, {}}, bare),
            "no tensor matched collection gradients; no tensor of any collection was saved");
}

TEST(RuleEngine, ARangeOfTheTrialAndAStop) {
  std::vector<std::int64_t> seen;
  RuleEngine engine;
  engine.add("r", std::make_unique<TestRule>(-1, &seen));
  Trial trial(healthy_run(10));
  engine.check_trial(trial, 3, 6);
  EXPECT_THAT(seen, ElementsAre(3, 4, 5));
  seen.clear();
  engine.check_trial(trial, 6, {}, true, [&] { return seen.size() == 2; });
  EXPECT_THAT(seen, ElementsAre(6, 7));
}

TEST(RuleEngine, FollowsUntilTheRunEnds) {
  std::vector<std::int64_t> seen;
  RuleEngine engine;
  engine.add("r", std::make_unique<TestRule>(-1, &seen));
  const auto run = healthy_run(2);
  Trial trial(run);
  int polls = 0;
  engine.check_trial(trial, {}, {}, true, [&] {
    if (seen.size() < 2) return false;
    if (++polls == 1) run->write(global_step(2), {{"loss", {1.0}}});
    if (polls == 3) {
      run->write(global_step(3), {{"loss", {1.0}}});
      run->end();
    }
    return polls > 10;
  });
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
  EXPECT_LE(polls, 5);
}

// A worker that turns up in the middle and sorts before the others must not change whose state is
// whose.
TEST(RuleEngine, AWorkersHistoryStaysItsOwn) {
  RuleEngine engine;
  engine.add({"VanishingGradient", {{"min_consecutive", "2"}}, {}});
  const auto run = std::make_shared<MemoryRun>();
  Trial trial(run);
  const auto write = [&](const char* worker, std::int64_t step, double gradient) {
    run->write(worker, global_step(step), {{"gradient/w", {gradient, gradient}, {"gradients"}}});
  };
  write("m", 0, 1e-9);
  trial.refresh();
  EXPECT_EQ(engine.check_trial(trial), 0u);
  write("a", 1, 1e-9);
  write("m", 1, 1.0);
  trial.refresh();
  EXPECT_EQ(engine.check_trial(trial, 1), 0u);
  write("a", 2, 1e-9);
  write("m", 2, 1e-9);
  trial.refresh();
  EXPECT_EQ(engine.check_trial(trial, 2), 1u);
  EXPECT_EQ(engine.reports()[0].first_finding->worker, "a");
}

TEST(Registry, NamesInAnySpelling) {
  EXPECT_EQ(find_rule("vanishing_gradient").name, "VanishingGradient");
  EXPECT_EQ(find_rule("LOSS-not-decreasing").name, "LossNotDecreasing");
  try {
    find_rule("VanishingGradints");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'VanishingGradient'"));
    EXPECT_THAT(error.what(), HasSubstr("ExplodingTensor"));
  }
}

TEST(Registry, EveryRuleCanBeMadeFromItsDefaultsAndIsDocumented) {
  ASSERT_GE(builtin_rules().size(), 3u);
  for (const RuleDescriptor* rule : builtin_rules()) {
    SCOPED_TRACE(rule->name);
    EXPECT_EQ(&find_rule(rule->name), rule);
    const bool is_complete = std::none_of(rule->parameters.begin(), rule->parameters.end(),
                                          [](const auto& one) { return one.is_required; });
    if (is_complete) {
      try {
        EXPECT_NE(rule->create(Parameters(rule->name, rule->parameters, {})), nullptr);
      } catch (const Error& error) {  // one of several parameters must be given
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr("must"));
      }
    } else {
      EXPECT_THROW(Parameters(rule->name, rule->parameters, {}), Error);
    }
    EXPECT_FALSE(rule->advice.why.empty());
    EXPECT_FALSE(rule->advice.causes.empty());
    EXPECT_FALSE(rule->advice.next_step.empty());
    EXPECT_GT(rule->doc.size(), 200u);
    EXPECT_FALSE(rule->summary.empty());
    for (const ParameterDescriptor& parameter : rule->parameters) {
      EXPECT_FALSE(parameter.doc.empty()) << parameter.name;
      for (const ParameterDescriptor& common : common_rule_parameters()) {
        EXPECT_NE(parameter.name, common.name);
      }
    }
  }
}

TEST(Registry, BadParametersOfBuiltinRulesAreRefused) {
  const auto refuse = [](const RuleSpec& spec) -> std::string {
    try {
      RuleEngine().add(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  };
  EXPECT_THAT(refuse({"VanishingGradient", {{"threshold", "0"}}, {}}), HasSubstr("greater than 0"));
  EXPECT_THAT(
      refuse({"VanishingGradient", {{"step", "0"}}, {}}),
      HasSubstr("threshold, min_consecutive, ignore_frozen, worker_policy, start_step, end_step"));
  EXPECT_THAT(refuse({"VanishingGradient", {{"worker_policy", "mean"}}, {}}),
              HasSubstr("any, first"));
  EXPECT_THAT(refuse({"ExplodingTensor", {{"tensor_regex", "("}}, {}}), HasSubstr("("));
  EXPECT_THAT(refuse({"LossNotDecreasing", {{"mode", "PREDICT"}}, {}}),
              HasSubstr("EVAL, TRAIN or GLOBAL"));
  EXPECT_THAT(refuse({"LossNotDecreasing", {{"use_losses_collection", "false"}}, {}}),
              HasSubstr("collection_names or tensor_regex"));
  for (const char* rule : {"AllZero", "TensorVariance", "UnchangedTensor"}) {
    EXPECT_THAT(refuse({rule, {}, {}}), HasSubstr("collection_names or tensor_regex"));
  }
  EXPECT_THAT(refuse({"TensorVariance", {{"tensor_regex", "w"}}, {}}),
              HasSubstr("max_threshold or min_threshold"));
  EXPECT_THAT(refuse({"TensorVariance",
                      {{"tensor_regex", "w"}, {"min_threshold", "2"}, {"max_threshold", "1"}},
                      {}}),
              HasSubstr("less than max_threshold"));
  EXPECT_THAT(refuse({"NLPSequenceRatio", {{"token_values", "0,1"}}, {}}),
              HasSubstr("same length"));
  EXPECT_THAT(refuse({"NLPSequenceRatio", {{"token_values", "pad"}}, {}}), HasSubstr("numbers"));
  EXPECT_THAT(refuse({"SaturatedActivation", {{"threshold_tanh", "(1)"}}, {}}),
              HasSubstr("two numbers"));
  EXPECT_THAT(refuse({"SaturatedActivation", {{"threshold_sigmoid_min", "20"}}, {}}),
              HasSubstr("less than"));
  EXPECT_THAT(refuse({"WeightUpdateRatio", {{"norm", "max"}}, {}}), HasSubstr("l1, l2"));
  EXPECT_THAT(refuse({"SimilarAcrossRuns", {}, {}}), HasSubstr("other_trials must"));
}

}  // namespace
}  // namespace tensortap
