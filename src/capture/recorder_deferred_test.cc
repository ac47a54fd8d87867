// Steps that are held back while a device computes.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/recorder_fixture_for_test.h"

namespace tensortap {
namespace {

using ::testing::ElementsAre;

// What a device computed of {2, 4}.
constexpr double kRow[kPartColumns] = {2, 0, 0, 0, 0, 0, 0, 0, 2, 4, 2, 3, 2, 3, 2};
constexpr float kValues[2] = {2, 4};
constexpr std::int64_t kShape[1] = {2};

class RecorderDeferredTest : public RecorderTest {
 protected:
  void start_every_step() {
    RecorderOptions options = recorder_options({"all"}, 1);
    options.reduction_config.save_raw_tensor = true;
    start(std::move(options));
  }
  // A step with a number from the host; gives its ticket.
  std::uint64_t deferred_step(double number) {
    recorder_->begin_step();
    recorder_->record_scalar("scalar/x", number);
    return recorder_->defer_step();
  }
  ComputedItem item(const char* name, bool with_raw = false) {
    ComputedItem result;
    result.tensor = recorder_->intern(name);
    result.view.dtype = DType::kFloat32;
    result.view.shape = kShape;
    if (with_raw) result.view.data = kValues;
    result.parts = parts_;
    return result;
  }
  std::vector<double> scalars() const {
    std::vector<double> result;
    for (const auto& step : sink_.steps) {
      const StatisticsRow* row = sink_.row(*step, "scalar/x");
      result.push_back(row != nullptr ? row->statistics.mean : -1.0);
    }
    return result;
  }

  const std::vector<PartRows> parts_ = {{kRow, nullptr, 1, 0}};
};

TEST_F(RecorderDeferredTest, GetsItsRowsLater) {
  start_every_step();
  const std::uint64_t ticket = deferred_step(7.0);
  EXPECT_FALSE(recorder_->in_step());
  EXPECT_TRUE(sink_.steps.empty());
  recorder_->complete_step(ticket, std::vector{item("x", true), item("y")});
  ASSERT_EQ(sink_.steps.size(), 1u);
  EXPECT_EQ(last().info.step, 0);
  EXPECT_EQ(sink_.row(last(), "scalar/x")->statistics.mean, 7.0);
  EXPECT_EQ(sink_.row(last(), "x")->statistics.mean, 3.0);
  EXPECT_EQ(sink_.row(last(), "x")->statistics.variance, 1.0);
  EXPECT_EQ(sink_.layouts.at(sink_.row(last(), "x")->layout), (Layout{DType::kFloat32, {2}}));
  const RawTensor* raw = sink_.raw(last(), "x");
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(std::memcmp(raw->data.data.get(), kValues, sizeof kValues), 0);
  EXPECT_EQ(sink_.raw(last(), "y"), nullptr);
}

TEST_F(RecorderDeferredTest, StepsAreHandedOnInOrder) {
  start_every_step();
  const std::uint64_t first = deferred_step(1.0);
  const std::uint64_t second = deferred_step(2.0);
  recorder_->begin_step();
  recorder_->record_scalar("scalar/x", 3.0);
  recorder_->end_step();  // not held back itself
  recorder_->complete_step(second, {});
  EXPECT_TRUE(sink_.steps.empty());
  recorder_->complete_step(first, {});
  EXPECT_THAT(scalars(), ElementsAre(1.0, 2.0, 3.0));
  EXPECT_THAT(sink_.global_steps(), ElementsAre(0, 1, 2));
  deferred_step(4.0);
  recorder_->close();
  EXPECT_THAT(scalars(), ElementsAre(1.0, 2.0, 3.0, 4.0));
}

TEST_F(RecorderDeferredTest, KeepsTheModeOfItsStep) {
  start_every_step();
  recorder_->set_mode(Mode::kTrain);
  const std::uint64_t ticket = deferred_step(1.0);
  recorder_->set_mode(Mode::kEval);
  recorder_->begin_step();
  recorder_->complete_step(ticket, std::vector{item("x")});
  EXPECT_EQ(last().info.mode, Mode::kTrain);
  EXPECT_EQ(last().info.mode_step, 0);
  EXPECT_TRUE(recorder_->in_step());
}

TEST_F(RecorderDeferredTest, AComputedRowReplacesTheHosts) {
  start_every_step();
  recorder_->begin_step();
  const FloatTensor old({9, 9, 9});
  recorder_->record(recorder_->intern("x"), old.view());
  const std::uint64_t ticket = recorder_->defer_step();
  recorder_->complete_step(ticket, std::vector{item("x")});
  ASSERT_EQ(last().rows.size(), 1u);
  EXPECT_EQ(last().rows[0].statistics.count, 2u);
  EXPECT_TRUE(last().raws.empty());
}

TEST_F(RecorderDeferredTest, AnEmptyStepIsNotHandedOn) {
  start_every_step();
  recorder_->begin_step();
  recorder_->complete_step(recorder_->defer_step(), {});
  EXPECT_TRUE(sink_.steps.empty());
}

TEST_F(RecorderDeferredTest, WrongTicketsDoNothing) {
  start_every_step();
  EXPECT_EQ(recorder_->defer_step(), 0u);
  const std::uint64_t ticket = deferred_step(1.0);
  recorder_->complete_step(ticket + 1, {});
  EXPECT_TRUE(sink_.steps.empty());
  recorder_->complete_step(ticket, {});
  recorder_->complete_step(ticket, std::vector{item("x")});
  EXPECT_EQ(sink_.steps.size(), 1u);
}

TEST_F(RecorderDeferredTest, AnUnknownTensorIsTheCallersMistake) {
  start_every_step();
  const std::uint64_t ticket = deferred_step(1.0);
  ComputedItem unknown = item("x");
  unknown.tensor = 1000;
  EXPECT_THROW(recorder_->complete_step(ticket, std::vector{unknown}), Error);
  recorder_->complete_step(ticket, {});
  EXPECT_EQ(sink_.steps.size(), 1u);
}

}  // namespace
}  // namespace tensortap
