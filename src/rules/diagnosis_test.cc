#include "rules/diagnosis.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rules/registry.h"
#include "rules/syndromes.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

Finding finding(std::string rule, std::int64_t step, std::string tensor = "",
                Severity severity = Severity::kWarning) {
  Finding made;
  made.rule = std::move(rule);
  made.step = step;
  made.tensor = std::move(tensor);
  made.severity = severity;
  made.message = "message of " + made.rule;
  return made;
}

std::vector<std::int64_t> steps_up_to(std::int64_t count, std::int64_t interval = 1) {
  std::vector<std::int64_t> steps;
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(i * interval);
  return steps;
}

std::vector<std::string> rules_of(const Diagnosis& diagnosis) {
  std::vector<std::string> rules;
  for (const Symptom& symptom : diagnosis.symptoms) rules.push_back(symptom.rule);
  return rules;
}

TEST(Diagnosis, OneIllnessAndNotThreeAlarms) {
  const std::vector<Finding> findings = {finding("VanishingGradient", 900, "gradient/a"),
                                         finding("VanishingGradient", 901, "gradient/a"),
                                         finding("VanishingGradient", 901, "gradient/b"),
                                         finding("LossNotDecreasing", 950, "loss"),
                                         finding("SaturatedActivation", 300, "tanh"),
                                         finding("PoorWeightInitialization", 0, "w")};
  const auto diagnoses = diagnose(findings, steps_up_to(1000));
  ASSERT_THAT(diagnoses, SizeIs(1));
  EXPECT_EQ(diagnoses[0].title, "Saturated layers let the gradients vanish");
  EXPECT_THAT(rules_of(diagnoses[0]), ElementsAre("PoorWeightInitialization", "VanishingGradient",
                                                  "SaturatedActivation", "LossNotDecreasing"));
  EXPECT_EQ(diagnoses[0].first_step, 0);
  EXPECT_EQ(diagnoses[0].last_step, 950);
  const Symptom& vanishing = diagnoses[0].symptoms[1];
  EXPECT_EQ(vanishing.finding_count, 3u);
  EXPECT_THAT(vanishing.tensors, ElementsAre("gradient/a", "gradient/b"));
  EXPECT_FALSE(diagnoses[0].causes.empty());
}

TEST(Diagnosis, WhatBeganTogetherIsExplainedByTheEarliestStage) {
  const std::vector<Finding> findings = {
      finding("ExplodingTensor", 5040, "x", Severity::kCritical), finding("MyRule", 5000),
      finding("VanishingGradient", 9000, "g"), finding("Expression", 5050)};
  const auto diagnoses = diagnose(findings, steps_up_to(1000, 10));
  ASSERT_THAT(diagnoses, SizeIs(2));
  EXPECT_EQ(diagnoses[0].severity, Severity::kCritical);
  EXPECT_THAT(rules_of(diagnoses[0]), ElementsAre("MyRule", "Expression", "ExplodingTensor"));
  EXPECT_EQ(diagnoses[0].title, "MyRule");
  EXPECT_THAT(rules_of(diagnoses[1]), ElementsAre("VanishingGradient"));
}

TEST(Diagnosis, AConsequenceAloneIsNoSyndrome) {
  const std::vector<Finding> findings = {finding("LossNotDecreasing", 10), finding("AllZero", 900)};
  EXPECT_THAT(diagnose(findings, steps_up_to(1000)), SizeIs(2));
  EXPECT_THAT(diagnose({}, {}), SizeIs(0));
}

TEST(Diagnosis, ASecondRuleOfAKindBelongsToItsKind) {
  const std::vector<Finding> findings = {finding("VanishingGradient_2", 10),
                                         finding("SaturatedActivation", 10)};
  const auto diagnoses = diagnose(findings, steps_up_to(20));
  ASSERT_THAT(diagnoses, SizeIs(1));
  EXPECT_EQ(diagnoses[0].symptoms[0].stage, Stage::kGradient);
}

TEST(Diagnosis, IsOneObjectAsJson) {
  Finding infinite = finding("ExplodingTensor", 3, "x");
  infinite.observed = INFINITY;
  const std::vector<Finding> findings = {infinite};
  const auto json = nlohmann::json::parse(to_json(diagnose(findings, steps_up_to(5))[0]));
  EXPECT_EQ(json.at("symptoms")[0].at("tensors")[0], "x");
  EXPECT_EQ(json.at("symptoms")[0].at("first_finding").at("observed"), "Infinity");
  EXPECT_EQ(json.at("severity"), "warning");
}

TEST(Syndromes, NameRulesThatThereAre) {
  for (const Syndrome& syndrome : syndromes()) {
    for (const auto names : {syndrome.signs, syndrome.consequences}) {
      for (const std::string_view name : names) {
        EXPECT_NO_THROW(EXPECT_EQ(find_rule(name).name, name)) << syndrome.title;
      }
    }
  }
}

TEST(FindingJson, ComesBackAsItWas) {
  Finding made = finding("ExplodingTensor", 12, "a\"b\n", Severity::kCritical);
  made.worker = "worker_1";
  made.mode = Mode::kEval;
  made.mode_step = 3;
  made.statistic = "nan_count";
  made.observed = -INFINITY;
  made.threshold = 0.1;
  const auto read = finding_from_json(to_json(made));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, made);
  made.observed = NAN;
  EXPECT_TRUE(std::isnan(finding_from_json(to_json(made))->observed));
}

TEST(FindingJson, HostileLinesGiveNothing) {
  for (const char* line : {"", "{", "[]", "null", "{}", R"({"rule": 3})", "{\"rule\": \"\xff\"}"}) {
    EXPECT_FALSE(finding_from_json(line)) << line;
  }
  const auto odd = finding_from_json(R"({"rule": "R", "step": "x", "mode": 7, "observed": []})");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->step, 0);
}

}  // namespace
}  // namespace tensortap
