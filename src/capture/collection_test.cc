#include "capture/collection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectionSet pytorch_collections() {
  CollectionSet set;
  set.get_or_create("weights").include("^(?!gradient).*weight");
  set.get_or_create("biases").include("^(?!gradient).*bias");
  set.get_or_create("gradients").include("^gradient");
  set.get_or_create("losses").include("[Ll]oss_(?!input).*output");
  set.get_or_create("all");
  return set;
}

TEST(Collection, SortsTensorsAsTheBuiltInPatternsOfPyTorchDo) {
  const CollectionSet set = pytorch_collections();
  EXPECT_THAT(set.collections_of("Net_conv1.weight"), ElementsAre("weights"));
  EXPECT_THAT(set.collections_of("Net_conv1.bias"), ElementsAre("biases"));
  EXPECT_THAT(set.collections_of("gradient/Net_conv1.weight"), ElementsAre("gradients"));
  EXPECT_THAT(set.collections_of("gradient/Net_conv1.bias"), ElementsAre("gradients"));
  EXPECT_THAT(set.collections_of("CrossEntropyLoss_output_0"), ElementsAre("losses"));
  EXPECT_THAT(set.collections_of("loss_output_0"), ElementsAre("losses"));
  EXPECT_THAT(set.collections_of("CrossEntropyLoss_input_0"), IsEmpty());
  EXPECT_THAT(set.collections_of("relu_output_0"), IsEmpty());
}

TEST(Collection, TakesLookbehindsAsPythonDoes) {
  Collection losses("losses");
  losses.include("^[a-zA-z]+-.+(?<!(auc|map))$");
  EXPECT_TRUE(losses.matches("train-error@0.6"));
  EXPECT_FALSE(losses.matches("train-auc"));
  EXPECT_FALSE(losses.matches("eval-map"));
}

TEST(Collection, MatchesByNameWithoutReadingItAsAPattern) {
  Collection custom("custom");
  custom.add_tensor_name("a.b");
  EXPECT_TRUE(custom.matches("a.b"));
  EXPECT_FALSE(custom.matches("axb"));
  EXPECT_FALSE(custom.matches("a.b.c"));
  custom.remove_tensor_name("a.b");
  custom.remove_tensor_name("never there");
  EXPECT_FALSE(custom.matches("a.b"));
}

TEST(Collection, RefusesAPatternThatDoesNotCompileAndKeepsTheRest) {
  Collection custom("custom");
  custom.include("^relu");
  EXPECT_THROW(custom.include("(unclosed"), Error);
  EXPECT_THAT(custom.include_regex(), ElementsAre("^relu"));
  EXPECT_TRUE(custom.matches("relu_output_0"));
}

TEST(CollectionSet, ReplacesASameNamedOneWhereItStands) {
  CollectionSet set = pytorch_collections();
  Collection& weights = set.get_or_create("weights");
  Collection replacement("weights");
  replacement.include("^kernel");
  set.add(std::move(replacement));
  EXPECT_EQ(&weights, set.find("weights"));
  EXPECT_TRUE(weights.matches("kernel_1"));
  EXPECT_FALSE(weights.matches("fc.weight"));
  EXPECT_EQ(set.size(), 5u);
  EXPECT_EQ(set.find("nobody"), nullptr);
}

TEST(ReductionConfig, ParsesTheTokensOfSmdebug) {
  EXPECT_THAT(ReductionConfig::parse_reductions("min, abs_mean ,l2,abs_l1_norm,l2_norm,"),
              ElementsAre("min", "abs_mean", "l2_norm", "abs_l1_norm"));
  EXPECT_THAT(ReductionConfig::parse_reductions("max,mean,std,variance,sum,abs_variance,l1"),
              ElementsAre("max", "mean", "std", "variance", "sum", "abs_variance", "l1_norm"));
  EXPECT_THAT(ReductionConfig::parse_reductions(" "), IsEmpty());
}

TEST(ReductionConfig, NamesTheValidTokensWhenItRefusesOne) {
  for (const char* token : {"mean,average", "min_norm", "abs_", "l3", "MEAN", "abs_abs_mean"}) {
    try {
      ReductionConfig::parse_reductions(token);
      ADD_FAILURE() << token;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("l1_norm")) << token;
    }
  }
}

TEST(ReductionConfig, SaysWhatToDoInsteadOfProdAndMedian) {
  for (const char* token : {"prod", "median", "abs_prod"}) {
    try {
      ReductionConfig::parse_reductions(token);
      ADD_FAILURE() << token;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("save_raw_tensor=True")) << token;
      EXPECT_THAT(error.what(), HasSubstr("variance")) << token;
    }
  }
}

CollectionSet configured_collections() {
  CollectionSet set = pytorch_collections();
  Collection& custom = set.get_or_create("custom \"quoted\"");
  custom.include("a{1,3},b");
  custom.add_tensor_name("scalar/loss");
  custom.save_histogram = false;
  custom.save_config = SaveConfig{};
  custom.save_config->at(Mode::kTrain) =
      SaveConfigMode{.save_interval = 5, .start_step = 2, .end_step = 90, .save_steps = {1, 7}};
  custom.reduction_config =
      ReductionConfig{.save_raw_tensor = true, .save_shape = true, .reductions = {"abs_mean"}};
  return set;
}

TEST(CollectionSet, ReadsBackWhatItWrote) {
  const CollectionSet written = configured_collections();
  const CollectionSet read = CollectionSet::from_json(written.to_json(), "here");
  ASSERT_EQ(read.names(), written.names());
  for (const std::string& name : written.names()) {
    const Collection& expected = *written.find(name);
    const Collection& found = *read.find(name);
    EXPECT_EQ(found.include_regex(), expected.include_regex());
    EXPECT_EQ(found.tensor_names(), expected.tensor_names());
    EXPECT_EQ(found.save_config, expected.save_config);
    EXPECT_EQ(found.reduction_config, expected.reduction_config);
    EXPECT_EQ(found.save_histogram, expected.save_histogram);
  }
  EXPECT_EQ(read.to_json(), written.to_json());
}

TEST(CollectionSet, ReadsWhatLaterVersionsAdd) {
  const CollectionSet set = CollectionSet::from_json(
      R"({"version": 1, "new": 1, "collections": {"a": {"include_regex": ["x"], "new": [],
          "reduction_config": {"reductions": "mean, l2"}, "save_config": null}}})",
      "here");
  const Collection* collection = set.find("a");
  ASSERT_NE(collection, nullptr);
  EXPECT_TRUE(collection->matches("axb"));
  EXPECT_TRUE(collection->save_histogram);
  EXPECT_FALSE(collection->save_config.has_value());
  EXPECT_THAT(collection->reduction_config->reductions, ElementsAre("mean", "l2_norm"));
}

TEST(CollectionSet, RefusesDamageNamingTheFile) {
  const std::vector<const char*> damaged = {
      "",
      "[]",
      "{\"collections\": {",
      R"({"version": 1})",
      R"({"collections": []})",
      R"({"version": "1", "collections": {}})",
      R"({"collections": {"a": 3}})",
      R"({"collections": {"a": {"include_regex": "x"}}})",
      R"({"collections": {"a": {"include_regex": [1]}}})",
      R"({"collections": {"a": {"include_regex": ["("]}}})",
      R"({"collections": {"a": {"save_histogram": 1}}})",
      R"({"collections": {"a": {"save_config": {"TRAIN": {"save_interval": 0}}}}})",
      R"({"collections": {"a": {"save_config": {"TRAIN": {"save_interval": 1.5}}}}})",
      R"({"collections": {"a": {"save_config": {"TRAIN": {"end_step": 18446744073709551615}}}}})",
      R"({"collections": {"a": {"reduction_config": {"save_raw_tensor": "true"}}}})",
  };
  for (const char* json : damaged) {
    try {
      CollectionSet::from_json(json, "run/collections/worker_0.json");
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << json;
      EXPECT_TRUE(std::string_view(error.what()).ends_with(": run/collections/worker_0.json"))
          << error.what();
    }
  }
}

TEST(CollectionSet, SaysThatAFileIsTooNew) {
  try {
    CollectionSet::from_json(R"({"version": 2, "collections": {}})", "here");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace tensortap
