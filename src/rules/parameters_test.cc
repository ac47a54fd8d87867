#include "rules/parameters.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr std::array<ParameterDescriptor, 6> kDeclared = {{
    {"threshold", ParameterType::kFloat, "1e-7", "", 0.0, 100.0, true},
    {"num_steps", ParameterType::kInt, "10", "", 1},
    {"only_nan", ParameterType::kBool, "false", ""},
    {"mode", ParameterType::kString, "", ""},
    {"names", ParameterType::kList, "", ""},
    {"end_step", ParameterType::kInt, "", "", 0},
}};

Parameters parse(const std::map<std::string, std::string>& given) {
  return Parameters("rule X", kDeclared, given);
}

std::string error_of(const std::map<std::string, std::string>& given) {
  try {
    parse(given);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

std::string spec_error_of(std::string_view text) {
  try {
    parse_rule_spec(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << text;
  return "";
}

TEST(Parameters, StringsAsSageMakerSendsThem) {
  const Parameters parameters = parse({{"threshold", "2.5E-3"},
                                       {"num_steps", "10.0"},
                                       {"only_nan", "TRUE"},
                                       {"names", "losses, metrics ,a{1,3}"}});
  EXPECT_EQ(parameters.get_float("threshold"), 2.5e-3);
  EXPECT_EQ(parameters.get_int("num_steps"), 10);
  EXPECT_TRUE(parameters.get_bool("only_nan"));
  EXPECT_THAT(parameters.get_list("names"), ElementsAre("losses", "metrics", "a{1,3}"));
  EXPECT_FALSE(parse({{"only_nan", "0"}}).get_bool("only_nan"));
  EXPECT_TRUE(parse({{"only_nan", "1"}}).get_bool("only_nan"));
}

TEST(Parameters, NoneAndEmptyMeanUnset) {
  const Parameters parameters = parse({{"threshold", "None"}, {"mode", ""}, {"end_step", "None"}});
  EXPECT_EQ(parameters.get_float("threshold"), 1e-7);
  EXPECT_FALSE(parameters.is_set("mode"));
  EXPECT_EQ(parameters.get_string("mode"), "");
  EXPECT_FALSE(parameters.is_set("end_step"));
  EXPECT_TRUE(parameters.is_set("num_steps"));
  EXPECT_TRUE(parse({{"end_step", "0"}}).is_set("end_step"));
}

TEST(Parameters, EffectiveValuesHaveOneSpelling) {
  EXPECT_THAT(
      parse({{"only_nan", "Yes"}, {"num_steps", " 20.0 "}}).effective(),
      ElementsAre(Pair("num_steps", "20"), Pair("only_nan", "true"), Pair("threshold", "1e-7")));
}

TEST(Parameters, AnUnknownNameListsTheValidOnes) {
  EXPECT_THAT(
      error_of({{"treshold", "1"}}),
      AllOf(HasSubstr("rule X has no parameter 'treshold'"), HasSubstr("did you mean 'threshold'"),
            HasSubstr("threshold, num_steps, only_nan, mode, names, end_step")));
}

TEST(Parameters, WhatDoesNotParseOrFitIsNamed) {
  EXPECT_THAT(error_of({{"threshold", "small"}}),
              HasSubstr("'threshold' must be a number, not 'small'"));
  EXPECT_THAT(error_of({{"num_steps", "1.5"}}), HasSubstr("must be a whole number, not '1.5'"));
  EXPECT_THAT(error_of({{"only_nan", "maybe"}}), HasSubstr("must be true or false, not 'maybe'"));
  EXPECT_THAT(error_of({{"threshold", "0"}}), HasSubstr("must be greater than 0, not '0'"));
  EXPECT_THAT(error_of({{"threshold", "100.5"}}), HasSubstr("must be at most 100, not '100.5'"));
  EXPECT_THAT(error_of({{"threshold", "nan"}}), HasSubstr("'threshold' must be"));
  EXPECT_THAT(error_of({{"num_steps", "0"}}), HasSubstr("must be at least 1, not '0'"));
}

TEST(RuleSpec, NameAndParameters) {
  EXPECT_EQ(parse_rule_spec(" VanishingGradient ").name, "VanishingGradient");
  EXPECT_TRUE(parse_rule_spec("VanishingGradient:").parameters.empty());
  const RuleSpec spec = parse_rule_spec(
      "LossNotDecreasing : num_steps = 5, collection_names=losses, metrics,mode=EVAL");
  EXPECT_EQ(spec.name, "LossNotDecreasing");
  EXPECT_THAT(spec.parameters, ElementsAre(Pair("collection_names", "losses,metrics"),
                                           Pair("mode", "EVAL"), Pair("num_steps", "5")));
}

TEST(RuleSpec, BracketsAndEqualSignsInPatterns) {
  const RuleSpec spec = parse_rule_spec("R:tensor_regex=a{1,3},(?=b),c=d,only_nan=true");
  EXPECT_THAT(spec.parameters, ElementsAre(Pair("c", "d"), Pair("only_nan", "true"),
                                           Pair("tensor_regex", "a{1,3},(?=b)")));
  EXPECT_EQ(parse_rule_spec("R:tensor_regex=x=y").parameters.at("tensor_regex"), "x=y");
}

TEST(RuleSpec, Mistakes) {
  EXPECT_THAT(spec_error_of(""), HasSubstr("the name is missing"));
  EXPECT_THAT(spec_error_of(":a=1"), HasSubstr("the name is missing"));
  EXPECT_THAT(spec_error_of("R:threshold"), HasSubstr("'threshold' has no '='"));
  EXPECT_THAT(spec_error_of("R:a=1,a=2"), HasSubstr("'a' is given twice"));
}

TEST(Parameters, AFamilyTakesAllNamesThatBeginAlike) {
  constexpr std::array<ParameterDescriptor, 1> kFamily = {{{.name = "BatchSize_*"}}};
  const Parameters parameters("rule R", kFamily, {{"batchsize_window", " 7 "}});
  EXPECT_EQ(parameters.effective().at("batchsize_window"), "7");
  EXPECT_THROW(Parameters("rule R", kFamily, {{"BatchSize_", "7"}}), Error);
  EXPECT_THROW(Parameters("rule R", kFamily, {{"Dataloader_window", "7"}}), Error);
}

}  // namespace
}  // namespace tensortap
