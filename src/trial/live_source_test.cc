#include "trial/live_source.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "trial/run_for_test.h"

namespace tensortap {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class LiveSourceTest : public testing::Test {
 protected:
  // A loss, a text at even steps, and a tensor of 1,000 elements with its raw value.
  void write(std::int64_t step, double loss) {
    std::vector<TestTensor> tensors = {
        {.name = "big",
         .values = std::vector<double>(1000, 0.5 * static_cast<double>(step)),
         .is_raw = true},
        {.name = "loss", .values = {loss}}};
    if (step % 2 == 0)
      tensors.push_back({.name = "note", .values = {}, .text = "at " + std::to_string(step)});
    live_.on_step(maker_.make(global_step(step), tensors), maker_.dictionary());
  }
  const WorkerSource& worker() { return *live_.workers().front(); }

  static constexpr TensorId kBig = 0;
  static constexpr TensorId kLoss = 1;
  static constexpr TensorId kNote = 2;
  RecordMaker maker_;
  LiveSource live_{"mem://live", "worker_0", 20'000};  // some three steps
};

TEST_F(LiveSourceTest, KeepsTheNewestStepsWithinTheBudgetAndScalarsForEver) {
  for (std::int64_t step = 0; step < 10; ++step) write(step, 1.0 / static_cast<double>(step + 1));
  ASSERT_EQ(worker().steps().size(), 10u);
  EXPECT_EQ(worker().steps()[4].step, 4);

  std::vector<std::uint32_t> every;
  for (std::uint32_t i = 0; i < 10; ++i) every.push_back(i);
  EXPECT_EQ(worker().tensor_ordinals(kLoss), every);
  EXPECT_EQ(worker().tensor_ordinals(kNote), (std::vector<std::uint32_t>{0, 2, 4, 6, 8}));
  const std::vector<std::uint32_t> big = worker().tensor_ordinals(kBig);
  ASSERT_FALSE(big.empty());
  EXPECT_LT(big.size(), 5u);
  EXPECT_EQ(big.back(), 9u);

  EXPECT_FALSE(worker().read_row(kBig, 0));
  EXPECT_FALSE(worker().read_raw(kBig, 0));
  ASSERT_TRUE(worker().read_raw(kBig, 9));
  float element = 0;
  std::memcpy(&element, worker().read_raw(kBig, 9)->data.data.get(), sizeof element);
  EXPECT_EQ(element, 4.5f);
  EXPECT_EQ(worker().read_text(kNote, 2), "at 2");
  EXPECT_FALSE(worker().read_text(kNote, 3));

  SourceColumn column;
  worker().read_column(kLoss, StatisticId::kMean, 1, 10, column);
  EXPECT_EQ(column.ordinals, (std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_FLOAT_EQ(column.values.front(), 0.5);
  EXPECT_FLOAT_EQ(column.values.back(), 0.1);
}

TEST_F(LiveSourceTest, ADroppedStepStillHasItsScalarsAndTexts) {
  for (std::int64_t step = 0; step < 10; ++step) write(step, static_cast<double>(step));
  const auto record = worker().read_step(2);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->info.step, 2);
  ASSERT_EQ(record->rows.size(), 1u);
  EXPECT_EQ(record->rows[0].tensor, kLoss);
  EXPECT_EQ(record->rows[0].statistics.mean, 2.0);
  ASSERT_EQ(record->texts.size(), 1u);
  EXPECT_EQ(record->texts[0].text, "at 2");
  EXPECT_EQ(worker().read_step(9)->rows.size(), 2u);
  EXPECT_EQ(worker().read_step(10), nullptr);
}

TEST_F(LiveSourceTest, AScalarComesBackFromItsCompactFormAsItWas) {
  const std::vector<double> values = {0.0, -2.5, kNaN, kInf, -kInf, 1e-40, 1e30, 1e-9};
  std::vector<StatisticsRow> before;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto ordinal = static_cast<std::uint32_t>(i);
    write(static_cast<std::int64_t>(i), values[i]);
    before.push_back(*worker().read_row(kLoss, ordinal));
  }
  for (std::int64_t step = 8; step < 16; ++step) write(step, 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto after = worker().read_row(kLoss, static_cast<std::uint32_t>(i));
    ASSERT_TRUE(after);
    EXPECT_EQ(after->layout, before[i].layout);
    for (const StatisticDescriptor& statistic : statistic_table()) {
      const double was = statistic_value(before[i].statistics, statistic.id);
      const double is = statistic_value(after->statistics, statistic.id);
      EXPECT_TRUE(was == is || (std::isnan(was) && std::isnan(is)))
          << statistic.name << " of " << values[i] << ": " << was << " became " << is;
    }
  }
}

TEST_F(LiveSourceTest, ANameThatWasNeverRecordedIsNotRecorded) {
  Dictionary dictionary;
  dictionary.tensors = {{"used", {}}, {"interned", {}}};
  dictionary.layouts = {{DType::kFloat32, {}}};
  auto record = std::make_shared<StepRecord>();
  record->rows.resize(1);
  record->rows[0].statistics.count = 1;
  live_.on_step(record, dictionary);
  EXPECT_TRUE(worker().is_recorded(0));
  EXPECT_FALSE(worker().is_recorded(1));
}

TEST_F(LiveSourceTest, SaysWhatIsNewOnce) {
  EXPECT_FALSE(live_.refresh());
  write(0, 1.0);
  EXPECT_TRUE(live_.refresh());
  EXPECT_FALSE(live_.refresh());
  live_.set_collections_json("{}");
  EXPECT_TRUE(live_.refresh());
  live_.set_collections_json("{}");
  EXPECT_FALSE(live_.refresh());
  live_.mark_ended();
  EXPECT_TRUE(live_.refresh());
  EXPECT_TRUE(worker().has_ended());
}

}  // namespace
}  // namespace tensortap
