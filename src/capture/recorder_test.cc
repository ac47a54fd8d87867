#include "capture/recorder.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "capture/recorder_fixture_for_test.h"

namespace tensortap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- counters, modes, what is due ----

TEST_F(RecorderTest, CountsEveryModeByItselfOverEpochsOfTrainingAndEvaluation) {
  RecorderOptions options = recorder_options({"losses"}, 2);
  options.save_config.at(Mode::kEval) = SaveConfigMode{.save_interval = 3};
  Recorder& recorder = start(std::move(options));
  EXPECT_EQ(recorder.step(), -1);
  EXPECT_EQ(recorder.mode_step(Mode::kTrain), -1);
  const FloatTensor loss({1.0F});
  const auto run = [&](Mode mode, int steps) {
    recorder.set_mode(mode);
    for (int i = 0; i < steps; ++i) {
      recorder.begin_step();
      recorder.record(recorder.intern("loss_output_0"), loss.view());
      recorder.end_step();
    }
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    run(Mode::kTrain, 5);
    run(Mode::kEval, 2);
  }
  EXPECT_EQ(recorder.step(), 20);
  EXPECT_EQ(recorder.mode_step(Mode::kTrain), 14);
  EXPECT_EQ(recorder.mode_step(Mode::kEval), 5);
  EXPECT_EQ(recorder.mode_step(Mode::kPredict), -1);
  EXPECT_EQ(recorder.mode_step(Mode::kGlobal), 20);
  EXPECT_THAT(sink_.mode_steps("loss_output_0", Mode::kTrain),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  EXPECT_THAT(sink_.mode_steps("loss_output_0", Mode::kEval), ElementsAre(0, 3));
  // Global steps: epochs of 5 + 2, so TRAIN step s is global s + 2 * (s / 5).
  EXPECT_THAT(sink_.global_steps(), ElementsAre(0, 2, 4, 5, 8, 10, 13, 14, 16, 18));
}

TEST_F(RecorderTest, EndsTheOpenStepAtTheNextOneAndAtAChangeOfMode) {
  Recorder& recorder = start(recorder_options({"weights"}, 1));
  const TensorId weight = recorder.intern("fc.weight");
  const FloatTensor values({1, 2});
  recorder.begin_step();
  recorder.record(weight, values.view());
  EXPECT_TRUE(recorder.in_step());
  recorder.begin_step();
  EXPECT_EQ(sink_.steps.size(), 1u);
  recorder.record(weight, values.view());
  recorder.set_mode(Mode::kGlobal);  // as it was
  EXPECT_TRUE(recorder.in_step());
  recorder.set_mode(Mode::kEval);
  EXPECT_FALSE(recorder.in_step());
  EXPECT_EQ(sink_.steps.size(), 2u);
  EXPECT_EQ(last().info.mode, Mode::kGlobal);
  recorder.end_step();
  EXPECT_EQ(sink_.steps.size(), 2u);
  EXPECT_THROW(recorder.set_mode(static_cast<Mode>(9)), Error);
}

TEST_F(RecorderTest, RecordsNothingThatIsNotDue) {
  Recorder& recorder = start(recorder_options({"weights"}, 2));
  const TensorId weight = recorder.intern("fc.weight");
  const TensorId bias = recorder.intern("fc.bias");
  const FloatTensor values({1, 2});
  recorder.record(weight, values.view());  // before the first step
  for (int step = 0; step < 3; ++step) {
    const StepPlan& plan = recorder.begin_step();
    EXPECT_EQ(plan.any_due(), step != 1);
    EXPECT_EQ(plan.is_due(weight), step != 1);
    EXPECT_FALSE(plan.is_due(bias));
    recorder.record(weight, values.view());
    recorder.record(bias, values.view());
    recorder.end_step();
    recorder.record(weight, values.view());  // between two
  }
  EXPECT_THAT(sink_.global_steps(), ElementsAre(0, 2));
  EXPECT_EQ(last().rows.size(), 1u);
}

TEST_F(RecorderTest, SavesNoGradientsWhileEvaluating) {
  Recorder& recorder = start(recorder_options({"gradients", "weights"}, 1));
  const TensorId gradient = recorder.intern("gradient/fc.weight");
  const TensorId weight = recorder.intern("fc.weight");
  recorder.set_mode(Mode::kEval);
  const StepPlan& plan = recorder.begin_step();
  EXPECT_FALSE(plan.is_due(gradient));
  EXPECT_TRUE(plan.is_due(weight));
}

TEST_F(RecorderTest, KnowsWhichNamesCouldEverBeWanted) {
  CollectionSet collections = builtin_collections();
  collections.find("losses")->save_config =
      SaveConfig::for_all_modes({.save_interval = 1, .end_step = 0});
  Recorder& recorder = start(recorder_options({"weights", "losses"}, 100), std::move(collections));
  for (int round = 0; round < 2; ++round) {  // before the first step and after
    EXPECT_TRUE(recorder.is_included("fc.weight"));
    EXPECT_FALSE(recorder.is_included("fc.bias"));
    EXPECT_FALSE(recorder.is_included("loss_output_0"));
    recorder.begin_step();
  }
  EXPECT_THAT(recorder.dictionary().tensors, IsEmpty());  // asking defines nothing
  const std::uint64_t version = recorder.plan_version();
  recorder.collections().find("weights")->include("bias");
  recorder.invalidate_plan();
  EXPECT_NE(recorder.plan_version(), version);
  EXPECT_TRUE(recorder.is_included("fc.bias"));
}

TEST_F(RecorderTest, SavesAllWhenAsked) {
  for (const bool by_name : {false, true}) {
    RecorderOptions options = recorder_options({}, 1);
    if (by_name) options.include_collections = {"all"};
    options.save_all = !by_name;
    Recorder& recorder = start(std::move(options));
    recorder.begin_step();
    EXPECT_TRUE(recorder.plan().is_due(recorder.intern("whatever"))) << by_name;
    EXPECT_TRUE(recorder.plan().is_due(recorder.intern("gradient/x"))) << by_name;
  }
}

// ---- collections ----

TEST_F(RecorderTest, PutsATensorIntoMatchingAndNamedCollections) {
  Recorder& recorder = start(recorder_options({"mine"}, 1));
  const std::vector<std::string> mine = {"mine"};
  const TensorId id = recorder.intern("fc.weight", mine);
  EXPECT_EQ(recorder.intern("fc.weight"), id);
  EXPECT_EQ(recorder.find("fc.weight"), id);
  EXPECT_EQ(recorder.find("fc.bias"), std::nullopt);
  EXPECT_THAT(recorder.dictionary().tensors[id].collections, ElementsAre("mine", "weights"));
  EXPECT_TRUE(recorder.collections().find("mine")->tensor_names().contains("fc.weight"));
  EXPECT_TRUE(recorder.collections().find("weights")->tensor_names().contains("fc.weight"));
  recorder.begin_step();
  EXPECT_TRUE(recorder.plan().is_due(id));
  // A tensor that turns up inside the step, by name and by collection.
  const TensorId late = recorder.intern("late", mine);
  EXPECT_TRUE(recorder.plan().is_due(late));
  const TensorId other = recorder.intern("other");
  EXPECT_FALSE(recorder.plan().is_due(other));
  recorder.intern("other", mine);
  EXPECT_TRUE(recorder.plan().is_due(other));
}

TEST_F(RecorderTest, TakesTensorNamesOfACollection) {
  CollectionSet collections = builtin_collections();
  collections.get_or_create("mine").add_tensor_name("relu_output_0");
  Recorder& recorder = start(recorder_options({"mine"}, 1), std::move(collections));
  recorder.begin_step();
  EXPECT_TRUE(recorder.plan().is_due(recorder.intern("relu_output_0")));
  EXPECT_FALSE(recorder.plan().is_due(recorder.intern("relu_output_01")));
}

TEST_F(RecorderTest, SeesCollectionsThatChangeBeforeTheFirstStepAndAfterwardsWhenTold) {
  Recorder& recorder = start(recorder_options({"mine", "weights"}, 1));
  const TensorId relu = recorder.intern("relu_output_0");
  const TensorId tanh = recorder.intern("tanh_output_0");
  recorder.collections().get_or_create("mine").include("^relu");
  EXPECT_TRUE(recorder.begin_step().is_due(relu));
  recorder.record(relu, FloatTensor({1, 2}).view());
  recorder.end_step();
  EXPECT_THAT(last().new_tensors.at(relu).collections, ElementsAre("mine"));
  recorder.collections().find("mine")->include("^tanh");
  recorder.collections().find("weights")->save_config = every(5);
  recorder.invalidate_plan();
  EXPECT_TRUE(recorder.begin_step().is_due(tanh));
  EXPECT_FALSE(recorder.plan().is_due(recorder.intern("fc.weight")));
}

TEST_F(RecorderTest, RefusesToBeginWithACollectionThatCanMatchNothing) {
  Recorder& recorder = start(recorder_options({"mine", "losses"}, 1));
  try {
    recorder.begin_step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("'mine'"));
  }
  EXPECT_EQ(recorder.step(), -1);
  recorder.collections().find("mine")->include("relu");
  recorder.begin_step();
  EXPECT_EQ(recorder.step(), 0);
}

TEST_F(RecorderTest, RefusesWrongOptions) {
  EXPECT_THROW(start(recorder_options({}, 0)), Error);
  for (const char* worker : {"", "a/b", "..", "a b", ".hidden"}) {
    RecorderOptions options = recorder_options({}, 1);
    options.worker = worker;
    EXPECT_THROW(start(std::move(options)), Error) << worker;
  }
  RecorderOptions options = recorder_options({}, 1);
  options.configuration_json = "{";
  EXPECT_THROW(start(std::move(options)), Error);
  CollectionSet collections = builtin_collections();
  collections.find("weights")->save_config = every(0);
  Recorder& recorder = start(recorder_options({"weights"}, 1), std::move(collections));
  EXPECT_THROW(recorder.begin_step(), Error);
}

TEST_F(RecorderTest, TakesStatisticsThatAFrameworkComputed) {
  Recorder& recorder = start(recorder_options({"weights", "losses"}, 2));
  const TensorId weight = recorder.intern("fc.weight");
  const TensorId loss = recorder.intern("loss_output_0");
  Statistics statistics;
  statistics.count = 6;
  statistics.mean = 1.5;
  Histogram histogram;
  histogram.counts[40] = 6;
  for (int step = 0; step < 2; ++step) {
    recorder.begin_step();
    recorder.record_statistics(weight, {DType::kBFloat16, {2, 3}}, statistics, &histogram);
    recorder.record_statistics(loss, {DType::kFloat32, {6}}, statistics, &histogram);
    recorder.end_step();
  }
  ASSERT_THAT(sink_.global_steps(), ElementsAre(0));
  const StatisticsRow* row = sink_.row(last(), "fc.weight");
  EXPECT_EQ(row->statistics.mean, 1.5);
  EXPECT_TRUE(row->has_histogram);
  EXPECT_EQ(row->histogram.counts[40], 6u);
  EXPECT_EQ(sink_.layouts.at(row->layout), (Layout{DType::kBFloat16, {2, 3}}));
  EXPECT_FALSE(sink_.row(last(), "loss_output_0")->has_histogram);
}

// ---- what scripts say themselves ----

TEST_F(RecorderTest, KeepsScalarsWithTheStepTheyWereSaidIn) {
  Recorder& recorder = start(recorder_options({"weights"}, 4));
  recorder.set_mode(Mode::kTrain);
  for (int step = 0; step < 3; ++step) {
    recorder.begin_step();
    recorder.record_scalar("scalar/lr", 0.5 * step);
    recorder.record_scalar("scalar/lr", step);
    recorder.end_step();
  }
  EXPECT_THAT(sink_.mode_steps("scalar/lr", Mode::kTrain), ElementsAre(0, 1, 2));
  for (const auto& step : sink_.steps) {
    ASSERT_EQ(step->rows.size(), 1u);
    EXPECT_EQ(single_value(step->rows[0]), static_cast<double>(step->info.step));
    EXPECT_EQ(sink_.layouts.at(step->rows[0].layout), (Layout{DType::kFloat64, {}}));
  }
}

TEST_F(RecorderTest, KeepsScalarsSaidBetweenStepsForTheNextAndItsMode) {
  Recorder& recorder = start(recorder_options({"weights"}, 1));
  recorder.record_scalar("scalar/a", 1.0);  // before the first step
  recorder.record_text("text/a", "hello");
  recorder.set_mode(Mode::kTrain);
  recorder.begin_step();
  recorder.end_step();
  recorder.record_scalar("scalar/a", 2.0);
  recorder.set_mode(Mode::kEval);
  recorder.begin_step();
  recorder.end_step();
  ASSERT_EQ(sink_.steps.size(), 2u);
  EXPECT_EQ(sink_.steps[0]->info.mode, Mode::kTrain);
  EXPECT_EQ(single_value(sink_.steps[0]->rows.at(0)), 1.0);
  EXPECT_EQ(sink_.steps[0]->texts.at(0).text, "hello");
  EXPECT_EQ(sink_.steps[1]->info.mode, Mode::kEval);
  EXPECT_EQ(single_value(sink_.steps[1]->rows.at(0)), 2.0);
}

TEST_F(RecorderTest, LosesNoScalarThatIsSaidLast) {
  Recorder& recorder = start(recorder_options({"weights"}, 2));
  recorder.record_scalar("scalar/a", 1.0);
  recorder.close();
  ASSERT_EQ(sink_.steps.size(), 1u);  // nothing ever began: it is step 0
  EXPECT_EQ(last().info.step, 0);

  Recorder& unsaved = start(recorder_options({"weights"}, 2));
  unsaved.begin_step();
  unsaved.begin_step();
  unsaved.end_step();  // step 1 is not written
  unsaved.record_scalar("scalar/a", 2.0);
  unsaved.close();
  EXPECT_EQ(last().info.step, 1);

  Recorder& saved = start(recorder_options({"weights"}, 2));
  saved.begin_step();
  saved.record(saved.intern("fc.weight"), FloatTensor({1, 2}).view());
  saved.end_step();  // step 0 is written, and must not be hidden by another step 0
  saved.record_scalar("scalar/a", 3.0);
  saved.close();
  EXPECT_EQ(last().info.step, 1);
  EXPECT_EQ(single_value(last().rows.at(0)), 3.0);

  Recorder& other_mode = start(recorder_options({"weights"}, 2));
  other_mode.set_mode(Mode::kTrain);
  other_mode.begin_step();
  other_mode.begin_step();
  other_mode.set_mode(Mode::kEval);
  other_mode.record_scalar("scalar/a", 4.0);
  other_mode.close();
  EXPECT_EQ(last().info.step, 2);
  EXPECT_EQ(last().info.mode, Mode::kEval);
  EXPECT_EQ(last().info.mode_step, 0);
}

TEST_F(RecorderTest, KeepsRawValuesThatAScriptAskedForWhateverThePlanSays) {
  Recorder& recorder = start(recorder_options({"weights"}, 2));
  const TensorId mine = recorder.intern("mine");
  const TensorId weight = recorder.intern("fc.weight");
  const FloatTensor early({1, 2, 3});
  const FloatTensor late({4, 5, 6});
  recorder.begin_step();
  recorder.record_raw(weight, early.view());
  recorder.record(weight, late.view());  // the plan wants no raw value, but the script did
  recorder.begin_step();
  recorder.record_raw(mine, late.view());  // a step in which nothing is due
  recorder.end_step();
  ASSERT_EQ(sink_.steps.size(), 2u);
  const RawTensor* raw = sink_.raw(*sink_.steps[0], "fc.weight");
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(std::memcmp(raw->data.data.get(), late.values.data(), 12), 0);
  ASSERT_NE(sink_.raw(*sink_.steps[1], "mine"), nullptr);
  EXPECT_EQ(sink_.row(*sink_.steps[1], "mine")->statistics.mean, 5.0);
}

// ---- definitions, dry runs, closing ----

TEST_F(RecorderTest, SendsEveryDefinitionWithTheFirstStepThatMayUseIt) {
  Recorder& recorder = start(recorder_options({"all"}, 1));
  std::vector<std::string> names;
  std::size_t layouts = 0;
  for (int step = 0; step < 3; ++step) {
    recorder.begin_step();
    for (int i = 0; i <= step; ++i) {
      recorder.record(recorder.intern("t" + std::to_string(i)),
                      FloatTensor(std::vector<float>(static_cast<std::size_t>(i) + 2)).view());
    }
    recorder.end_step();
    EXPECT_EQ(last().new_tensors.size(), 1u);
    for (const TensorInfo& tensor : last().new_tensors) names.push_back(tensor.name);
    layouts += last().new_layouts.size();
    for (const StatisticsRow& row : last().rows) {
      EXPECT_LT(row.tensor, names.size());
      EXPECT_LT(row.layout, layouts);
    }
  }
  EXPECT_THAT(names, ElementsAre("t0", "t1", "t2"));
}

TEST_F(RecorderTest, WritesNothingInADryRunButCountsAndPlans) {
  RecorderOptions options = recorder_options({"weights"}, 1);
  options.dry_run = true;
  const std::shared_ptr<Storage> storage = options.storage;
  Recorder& recorder = start(std::move(options));
  const TensorId weight = recorder.intern("fc.weight");
  EXPECT_TRUE(recorder.begin_step().is_due(weight));
  recorder.record(weight, FloatTensor({1, 2}).view());
  recorder.record_scalar("scalar/a", 1.0);
  recorder.end_step();
  recorder.export_collections();
  EXPECT_TRUE(recorder.flush(1'000'000));
  recorder.close();
  EXPECT_EQ(recorder.step(), 0);
  EXPECT_EQ(sink_.steps.size(), 1u);
  EXPECT_THAT(storage->list(""), IsEmpty());
}

TEST_F(RecorderTest, IsInertOnceItIsClosed) {
  Recorder& recorder = start(recorder_options({"weights"}, 1));
  const TensorId weight = recorder.intern("fc.weight");
  recorder.begin_step();
  recorder.record(weight, FloatTensor({1, 2}).view());
  recorder.close();  // ends the open step
  EXPECT_EQ(sink_.steps.size(), 1u);
  EXPECT_TRUE(recorder.is_closed());
  recorder.close();
  EXPECT_FALSE(recorder.begin_step().any_due());
  recorder.record(weight, FloatTensor({1, 2}).view());
  recorder.record_scalar("scalar/a", 1.0);
  recorder.end_step();
  recorder.close();
  EXPECT_EQ(recorder.step(), 0);
  EXPECT_EQ(sink_.steps.size(), 1u);
  EXPECT_EQ(recorder.counters().written_steps, 1u);
}

}  // namespace
}  // namespace tensortap
