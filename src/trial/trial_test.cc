#include "trial/trial.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "trial/run_for_test.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Mode kTrain = Mode::kTrain;
constexpr Mode kEval = Mode::kEval;

std::shared_ptr<Trial> open(const std::shared_ptr<MemoryRun>& run,
                            const TrialOptions& options = {}) {
  return std::make_shared<Trial>(run, options);
}

template <class Call>
std::string error_of(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// One tensor at train steps 0-4 and eval steps 0-1, interleaved, with different constants.
std::shared_ptr<MemoryRun> two_mode_run() {
  auto run = std::make_shared<MemoryRun>();
  std::int64_t step = 0;
  for (std::int64_t train = 0; train < 5; ++train) {
    run->write(mode_step(step++, kTrain, train),
               {{"loss", {1.0 + static_cast<double>(train)}, {"losses"}},
                {"gradient/w", {0.1, 0.2}, {"gradients"}}});
    if (train % 2 == 1) {
      const std::int64_t eval = train / 2;
      run->write(mode_step(step++, kEval, eval),
                 {{"loss", {100.0 + static_cast<double>(eval)}, {"losses"}},
                  {"accuracy", {0.5}, {"metrics"}}});
    }
  }
  return run;
}

TEST(Trial, ModesCompose) {
  const auto trial = open(two_mode_run());
  EXPECT_THAT(trial->modes(), ElementsAre(kTrain, kEval));
  EXPECT_THAT(trial->steps(), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(trial->steps(kTrain), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(trial->steps(kEval), ElementsAre(0, 1));
  EXPECT_THAT(trial->steps(Mode::kPredict), IsEmpty());

  EXPECT_THAT(trial->tensor_steps("loss", kTrain), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(trial->tensor_steps("loss", kEval), ElementsAre(0, 1));
  EXPECT_THAT(trial->tensor_steps("accuracy"), ElementsAre(2, 5));
  EXPECT_THAT(trial->tensor_steps("accuracy", kTrain), IsEmpty());

  EXPECT_EQ(trial->row("loss", 1, kTrain)->statistics.mean, 2.0);
  EXPECT_EQ(trial->row("loss", 1, kEval)->statistics.mean, 101.0);
  EXPECT_EQ(trial->row("loss", 5)->statistics.mean, 101.0);  // global step 5 is eval step 1
  EXPECT_FALSE(trial->row("loss", 4, kEval));

  const Column train = trial->column("loss", StatisticId::kMean, kTrain);
  EXPECT_THAT(train.steps, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(train.values, ElementsAre(1, 2, 3, 4, 5));
  const Column eval = trial->column("loss", StatisticId::kMean, kEval);
  EXPECT_THAT(eval.steps, ElementsAre(0, 1));
  EXPECT_THAT(eval.values, ElementsAre(100, 101));
  EXPECT_THAT(trial->column("loss", StatisticId::kMean).values,
              ElementsAre(1, 2, 100, 3, 4, 101, 5));

  EXPECT_EQ(trial->global_step(kEval, 1), 5);
  EXPECT_FALSE(trial->global_step(kEval, 2));
  EXPECT_EQ(trial->step_info(5)->mode, kEval);
  EXPECT_EQ(trial->step_info(5)->mode_step, 1);
  EXPECT_FALSE(trial->step_info(7));
}

TEST(Trial, NamesByRegexCollectionStepAndMode) {
  const auto run = two_mode_run();
  run->live().set_collections_json(
      R"({"version":1,"collections":
          {"custom":{"include_regex":["^acc"],"tensor_names":["loss"]}}})");
  const auto trial = open(run);
  EXPECT_THAT(trial->tensor_names(), ElementsAre("accuracy", "gradient/w", "loss"));
  EXPECT_THAT(trial->tensor_names({.regexes = {"^gr", "cur"}}),
              ElementsAre("accuracy", "gradient/w"));
  EXPECT_THAT(trial->tensor_names({.collection = "gradients"}), ElementsAre("gradient/w"));
  EXPECT_THAT(trial->tensor_names({.collection = "custom"}), ElementsAre("accuracy", "loss"));
  EXPECT_THAT(trial->tensor_names({.collection = "nothing"}), IsEmpty());
  EXPECT_THAT(trial->tensor_names({.mode = kEval}), ElementsAre("accuracy", "loss"));
  EXPECT_THAT(trial->tensor_names({.mode = kTrain}), ElementsAre("gradient/w", "loss"));
  EXPECT_THAT(trial->tensor_names({.mode = Mode::kPredict}), IsEmpty());
  EXPECT_THAT(trial->tensor_names({.step = 2}), ElementsAre("accuracy", "loss"));
  EXPECT_THAT(trial->tensor_names({.step = 2, .mode = kTrain}), ElementsAre("gradient/w", "loss"));
  EXPECT_THAT(trial->tensor_names({.step = 77}), IsEmpty());
  EXPECT_THAT(trial->tensor_names({.regexes = {"o"}, .collection = "custom", .mode = kTrain}),
              ElementsAre("loss"));
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { trial->tensor_names({.regexes = {"("}}); }),
      HasSubstr("("));
  EXPECT_THAT(trial->collections().names(), ElementsAre("custom"));
}

TEST(Trial, ARefreshShowsNewTensorsStepsAndCollections) {
  const auto run = std::make_shared<MemoryRun>();
  const auto trial = open(run);
  EXPECT_THAT(trial->tensor_names(), IsEmpty());
  EXPECT_FALSE(trial->has_ended());
  run->write(global_step(0), {{"a", {1}}});
  EXPECT_THAT(trial->steps(), IsEmpty());
  EXPECT_TRUE(trial->refresh());
  EXPECT_FALSE(trial->refresh());
  EXPECT_THAT(trial->tensor_names({.regexes = {"^late"}}), IsEmpty());
  run->write(global_step(10), {{"a", {1}}, {"late", {2}}});
  run->live().set_collections_json(
      R"({"version":1,"collections":{"c":{"include_regex":["late"],"tensor_names":[]}}})");
  EXPECT_TRUE(trial->refresh());
  EXPECT_THAT(trial->steps(), ElementsAre(0, 10));
  EXPECT_THAT(trial->tensor_steps("late"), ElementsAre(10));
  EXPECT_THAT(trial->tensor_names({.collection = "c"}), ElementsAre("late"));
  EXPECT_TRUE(trial->has_tensor("late"));
  run->end();
  EXPECT_TRUE(trial->refresh());
  EXPECT_TRUE(trial->has_ended());
}

TEST(Trial, DamagedCollectionsDoNotStopQueries) {
  const auto run = two_mode_run();
  run->live().set_collections_json("{\"version\":");
  EXPECT_THAT(open(run)->tensor_names({.collection = "gradients"}), ElementsAre("gradient/w"));
}

TEST(Trial, SparseTensorsHaveTheirOwnSteps) {
  const auto run = std::make_shared<MemoryRun>();
  for (std::int64_t step = 0; step < 40; step += 5) {
    std::vector<TestTensor> tensors = {{"often", {static_cast<double>(step)}}};
    if (step % 20 == 0) tensors.push_back({"seldom", {1.0, static_cast<double>(step)}});
    run->write(global_step(step), tensors);
  }
  const auto trial = open(run);
  EXPECT_THAT(trial->tensor_steps("seldom"), ElementsAre(0, 20));
  EXPECT_THAT(trial->column("seldom", StatisticId::kMax).values, ElementsAre(1, 20));
  EXPECT_FALSE(trial->row("seldom", 5));
  EXPECT_FALSE(trial->row("seldom", 7));
}

TEST(Trial, ARangeHidesWhatIsOutside) {
  const auto run = std::make_shared<MemoryRun>();
  for (std::int64_t step = 0; step < 10; ++step) {
    run->write(mode_step(step, kTrain, step),
               {{step < 3 ? "early" : "late", {static_cast<double>(step)}}});
  }
  const auto trial = open(run, {.first_step = 4, .last_step = 7});
  EXPECT_THAT(trial->steps(), ElementsAre(4, 5, 6));
  EXPECT_THAT(trial->steps(kTrain), ElementsAre(4, 5, 6));
  EXPECT_THAT(trial->tensor_names(), ElementsAre("late"));
  EXPECT_FALSE(trial->has_tensor("early"));
  EXPECT_THAT(trial->column("late", StatisticId::kMean).values, ElementsAre(4, 5, 6));
  EXPECT_EQ(trial->has_passed_step(2), StepState::kUnavailable);
  EXPECT_EQ(trial->has_passed_step(5), StepState::kAvailable);
  EXPECT_EQ(trial->has_passed_step(8), StepState::kNotYetAvailable);
  run->end();
  trial->refresh();
  EXPECT_EQ(trial->has_passed_step(8), StepState::kUnavailable);
  error_of(ErrorCode::kInvalidArgument, [&] { open(run, {.first_step = 7, .last_step = 7}); });
  error_of(ErrorCode::kInvalidArgument, [&] { open(run, {.first_step = -1}); });
}

TEST(Trial, AResumeReplacesWhatItWentBackBehind) {
  const auto run = std::make_shared<MemoryRun>();
  for (std::int64_t step = 0; step <= 150; step += 10) {
    run->write(global_step(step, 0), {{"loss", {1.0}}, {step > 110 ? "only_first" : "x", {1, 2}}});
  }
  const auto trial = open(run);
  EXPECT_EQ(trial->steps().size(), 16u);
  EXPECT_EQ(trial->has_passed_step(150), StepState::kAvailable);
  EXPECT_TRUE(trial->has_tensor("only_first"));

  run->write(global_step(100, 1), {{"loss", {2.0}}});
  trial->refresh();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100));
  EXPECT_EQ(trial->has_passed_step(110), StepState::kNotYetAvailable);
  EXPECT_FALSE(trial->has_tensor("only_first"));

  for (std::int64_t step = 115; step <= 200; step += 15) {
    run->write(global_step(step, 1), {{"loss", {2.0}}});
  }
  trial->refresh();
  EXPECT_THAT(trial->steps(), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 115, 130, 145,
                                          160, 175, 190));
  const Column loss = trial->column("loss", StatisticId::kMean);
  EXPECT_EQ(loss.steps, trial->steps());
  for (std::size_t i = 0; i < loss.steps.size(); ++i) {
    EXPECT_EQ(loss.values[i], loss.steps[i] < 100 ? 1.0 : 2.0) << loss.steps[i];
  }
  EXPECT_EQ(trial->records(100).front()->info.session, 1u);
  EXPECT_EQ(open(run)->steps(), trial->steps());  // read at once or as it grew: the same
  const auto middle = open(run, {.first_step = 95, .last_step = 131});
  EXPECT_THAT(middle->steps(), ElementsAre(100, 115, 130));
}

TEST(Trial, AResumeCountsInEveryMode) {
  const auto run = std::make_shared<MemoryRun>();
  run->write(mode_step(0, kTrain, 0), {{"loss", {0}}});
  run->write(mode_step(1, kEval, 0), {{"loss", {1}}});
  run->write(mode_step(2, kTrain, 1), {{"loss", {2}}});
  run->write(mode_step(3, kEval, 1), {{"loss", {3}}});
  StepInfo again = mode_step(2, kTrain, 1);
  again.session = 1;
  run->write(again, {{"loss", {20}}});
  const auto trial = open(run);
  EXPECT_THAT(trial->steps(kEval), ElementsAre(0));
  EXPECT_THAT(trial->column("loss", StatisticId::kMean, kTrain).values, ElementsAre(0, 20));
}

TEST(Trial, HasPassedStep) {
  const auto run = std::make_shared<MemoryRun>();
  for (const std::int64_t step : {0, 10, 20}) {
    run->write("a", mode_step(step + 1, kTrain, step), {{"w", {1}}});
    if (step < 20) run->write("b", mode_step(step + 1, kTrain, step), {{"w", {1}}});
  }
  const auto trial = open(run);
  EXPECT_EQ(trial->has_passed_step(10, kTrain), StepState::kAvailable);
  EXPECT_EQ(trial->has_passed_step(11), StepState::kAvailable);
  EXPECT_EQ(trial->has_passed_step(5, kTrain), StepState::kUnavailable);       // passed over
  EXPECT_EQ(trial->has_passed_step(20, kTrain), StepState::kNotYetAvailable);  // b lacks it
  EXPECT_EQ(trial->has_passed_step(15, kTrain), StepState::kNotYetAvailable);  // b may bring it
  EXPECT_EQ(trial->has_passed_step(30, kTrain), StepState::kNotYetAvailable);
  EXPECT_EQ(trial->has_passed_step(0, kEval), StepState::kNotYetAvailable);
  run->end("a");
  run->end("b");
  trial->refresh();
  EXPECT_EQ(trial->has_passed_step(20, kTrain), StepState::kAvailable);
  EXPECT_EQ(trial->has_passed_step(15, kTrain), StepState::kUnavailable);
  EXPECT_EQ(trial->has_passed_step(30, kTrain), StepState::kUnavailable);
  EXPECT_EQ(trial->has_passed_step(0, kEval), StepState::kUnavailable);
}

TEST(Trial, WaitForSteps) {
  const auto run = std::make_shared<MemoryRun>();
  run->write(global_step(0), {{"w", {1}}});
  run->write(global_step(10), {{"w", {1}}});
  const auto trial = open(run);
  const auto wait = [&](std::vector<std::int64_t> steps, std::optional<std::int64_t> timeout_ns,
                        const std::function<bool()>& between = {}) {
    return trial->wait_for_steps(steps, Mode::kGlobal, timeout_ns, between);
  };
  EXPECT_EQ(wait({0, 10}, 0), std::nullopt);
  EXPECT_EQ(wait({0, 5, 20}, std::nullopt), 5);  // can no longer come

  const std::int64_t start_ns = monotonic_time_ns();
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { wait({20}, 100'000'000); }),
              HasSubstr("timed out while waiting for step 20"));
  const double waited_s = static_cast<double>(monotonic_time_ns() - start_ns) * 1e-9;
  EXPECT_GE(waited_s, 0.1);
  EXPECT_LT(waited_s, 2.0);
  EXPECT_THAT(
      error_of(ErrorCode::kUnavailable, [&] { wait({20}, std::nullopt, [] { return true; }); }),
      HasSubstr("stopped"));

  int polls = 0;
  EXPECT_EQ(wait({20, 21}, std::nullopt,
                 [&] {
                   run->write(global_step(20 + polls), {{"w", {1}}});
                   return ++polls > 5;
                 }),
            std::nullopt);
  EXPECT_EQ(polls, 2);
  // The trial goes on following after a wait.
  run->write(global_step(30), {{"w", {1}}});
  EXPECT_TRUE(trial->refresh());
  EXPECT_EQ(wait({99}, std::nullopt,
                 [&] {
                   run->end();
                   return false;
                 }),
            99);
}

TEST(Trial, AnUnknownTensorSuggestsNearNames) {
  const auto trial = open(two_mode_run());
  const auto message = [&](const auto& call) { return error_of(ErrorCode::kNotFound, call); };
  EXPECT_THAT(message([&] { trial->row("gradient/v", 0); }), HasSubstr("gradient/w"));
  EXPECT_THAT(message([&] { trial->tensor_steps("los"); }), HasSubstr("loss"));
  EXPECT_THAT(message([&] { trial->column("accurcy", StatisticId::kMean); }),
              HasSubstr("accuracy"));
  EXPECT_FALSE(trial->has_tensor("los"));
}

TEST(Trial, ValuesAreRawOrRebuiltFromOneElement) {
  const auto run = std::make_shared<MemoryRun>();
  run->write(global_step(0),
             {{.name = "raw", .values = {1.5, -2}, .dtype = DType::kFloat64, .is_raw = true},
              {.name = "scalar", .values = {0.1}},
              {.name = "half", .values = {65504}, .dtype = DType::kFloat16},
              {.name = "flag", .values = {1}, .dtype = DType::kBool},
              {.name = "lost", .values = {std::nan("")}},
              {.name = "reduced", .values = {1, 2, 3}},
              {.name = "note", .values = {}, .text = "hello"}});
  const auto trial = open(run);
  const auto element = [&](const char* name, std::size_t index, auto as) {
    const auto value = trial->value(name, 0);
    std::memcpy(&as, value->data.data.get() + index * sizeof as, sizeof as);
    return as;
  };
  EXPECT_EQ(trial->value("raw", 0)->layout.shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(element("raw", 1, double{}), -2.0);
  EXPECT_EQ(trial->value("scalar", 0)->layout.dtype, DType::kFloat32);
  EXPECT_THAT(trial->value("scalar", 0)->layout.shape, IsEmpty());
  EXPECT_EQ(element("scalar", 0, float{}), 0.1f);
  EXPECT_EQ(element("half", 0, std::uint16_t{}), 0x7bff);
  EXPECT_EQ(element("flag", 0, std::uint8_t{}), 1);
  EXPECT_TRUE(std::isnan(element("lost", 0, float{})));
  EXPECT_FALSE(trial->value("reduced", 0));
  EXPECT_EQ(trial->layout("reduced", 0)->shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(trial->text("note", 0), "hello");
  EXPECT_FALSE(trial->value("note", 0));
  EXPECT_FALSE(trial->text("raw", 0));
  EXPECT_THAT(trial->tensor_names({.step = 0}),
              ElementsAre("flag", "half", "lost", "note", "raw", "reduced", "scalar"));
}

TEST(Trial, LooksBackInALiveProcessAsFarAsTheBudgetReaches) {
  const auto run = std::make_shared<MemoryRun>(20'000);
  const auto trial = open(run);
  for (std::int64_t step = 0; step < 200; ++step) {
    std::vector<TestTensor> tensors = {{"big", std::vector<double>(100, 1.0)}, {"loss", {2.0}}};
    if (step == 0) tensors.push_back({"once", {1, 2}});
    run->write(global_step(step), tensors);
    ASSERT_TRUE(trial->refresh());
    ASSERT_EQ(trial->row("big", step)->statistics.mean, 1.0);
  }
  EXPECT_EQ(trial->steps().size(), 200u);
  EXPECT_EQ(trial->column("loss", StatisticId::kMean).values.size(), 200u);
  EXPECT_LT(trial->column("big", StatisticId::kMean).values.size(), 50u);
  EXPECT_TRUE(trial->has_tensor("once"));  // its value is gone, its name is not
  EXPECT_FALSE(trial->row("once", 0));
}

}  // namespace
}  // namespace tensortap
