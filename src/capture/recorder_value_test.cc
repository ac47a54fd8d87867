// What Recorder keeps of a tensor: statistics, histogram, values, of all kinds of views, one by one
// and in batches.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "capture/recorder.h"
#include "capture/recorder_fixture_for_test.h"

namespace tensortap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecorderValueTest : public RecorderTest {
 protected:
  // One step with raw values of everything.
  void start_raw() {
    RecorderOptions options = recorder_options({"all"}, 1);
    options.reduction_config.save_raw_tensor = true;
    start(std::move(options));
    recorder_->begin_step();
  }
  template <class T>
  void record_one(const char* name, DType dtype, const T& value) {
    TensorView view;
    view.data = &value;
    view.dtype = dtype;
    recorder_->record(recorder_->intern(name), view);
  }
};

TEST_F(RecorderValueTest, KeepsStatisticsHistogramAndValues) {
  start_raw();
  const FloatTensor tensor({1, -2, 3, 0});
  recorder_->record(recorder_->intern("x"), tensor.view());
  recorder_->end_step();
  const StatisticsRow* row = sink_.row(last(), "x");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->statistics.count, 4u);
  EXPECT_EQ(row->statistics.mean, 0.5);
  EXPECT_EQ(row->statistics.min, -2.0);
  EXPECT_TRUE(row->has_histogram);
  std::uint64_t in_buckets = 0;
  for (const std::uint64_t count : row->histogram.counts) in_buckets += count;
  EXPECT_EQ(in_buckets, 3u);
  EXPECT_EQ(sink_.layouts.at(row->layout), (Layout{DType::kFloat32, {4}}));
  const RawTensor* raw = sink_.raw(last(), "x");
  ASSERT_NE(raw, nullptr);
  ASSERT_EQ(raw->data.size_bytes, 16u);
  EXPECT_EQ(std::memcmp(raw->data.data.get(), tensor.values.data(), 16), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(raw->data.data.get()) % 64, 0u);
}

TEST_F(RecorderValueTest, CopiesStridedTensorsInCOrder) {
  start_raw();
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> strides = {4, 12};  // the transpose of a 2 x 3 matrix
  recorder_->record(recorder_->intern("x"), {memory.data(), DType::kFloat32, shape, strides});
  recorder_->end_step();
  const RawTensor* raw = sink_.raw(last(), "x");
  ASSERT_NE(raw, nullptr);
  const auto* values = reinterpret_cast<const float*>(raw->data.data.get());
  EXPECT_THAT(std::vector<float>(values, values + 6), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST_F(RecorderValueTest, CopiesOneElementOnlyWhereStatisticsCannotHoldIt) {
  start_raw();
  record_one("float", DType::kFloat32, 2.5F);
  record_one("nan", DType::kFloat64, std::numeric_limits<double>::quiet_NaN());
  record_one("small int", DType::kInt64, std::int64_t{9007199254740991});
  record_one("large int", DType::kInt64, std::int64_t{-9007199254740993});
  record_one("large unsigned", DType::kUInt64, std::uint64_t{UINT64_MAX});
  record_one("complex", DType::kComplex64, std::complex<float>(1, 2));
  recorder_->end_step();
  EXPECT_EQ(sink_.raw(last(), "float"), nullptr);
  EXPECT_EQ(sink_.raw(last(), "nan"), nullptr);
  EXPECT_EQ(sink_.raw(last(), "small int"), nullptr);
  EXPECT_EQ(single_value(*sink_.row(last(), "float")), 2.5);
  EXPECT_EQ(single_value(*sink_.row(last(), "small int")), 9007199254740991.0);
  for (const char* name : {"large int", "large unsigned", "complex"}) {
    EXPECT_NE(sink_.raw(last(), name), nullptr) << name;
  }
}

TEST_F(RecorderValueTest, RecordsTensorsWithoutElements) {
  start_raw();
  const std::vector<std::int64_t> shape = {0, 3};
  recorder_->record(recorder_->intern("empty"), {nullptr, DType::kFloat32, shape, {}});
  recorder_->end_step();
  const StatisticsRow* row = sink_.row(last(), "empty");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->statistics.count, 0u);
  EXPECT_EQ(sink_.layouts.at(row->layout), (Layout{DType::kFloat32, {0, 3}}));
}

TEST_F(RecorderValueTest, KeepsTheLastOfSeveralRecordsInAStep) {
  start_raw();
  const TensorId id = recorder_->intern("x");
  recorder_->record(id, FloatTensor({1, 1}).view());
  recorder_->record(id, FloatTensor({2, 2, 2}).view());
  recorder_->end_step();
  ASSERT_EQ(last().rows.size(), 1u);
  EXPECT_EQ(last().rows[0].statistics.mean, 2.0);
  EXPECT_EQ(sink_.layouts.at(last().rows[0].layout).shape, std::vector<std::int64_t>{3});
  ASSERT_EQ(last().raws.size(), 1u);
  EXPECT_EQ(last().raws[0].data.size_bytes, 12u);
}

TEST_F(RecorderValueTest, RefusesAViewThatCannotBeRead) {
  start_raw();
  const TensorId id = recorder_->intern("x");
  const std::vector<std::int64_t> two = {2};
  const std::vector<std::int64_t> negative = {-1};
  const float value[2] = {1, 2};
  const std::vector<TensorView> wrong = {{nullptr, DType::kFloat32, two, {}},
                                         {value, DType::kFloat32, negative, {}},
                                         {value, DType::kFloat32, {}, two}};
  for (const TensorView& view : wrong) {
    try {
      recorder_->record(id, view);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("'x'"));
    }
    EXPECT_THROW(recorder_->record_raw(id, view), Error);
  }
  EXPECT_THROW(recorder_->record(99, {value, DType::kFloat32, two, {}}), Error);
  // One bad view does not cost the rest of its batch.
  const TensorId good = recorder_->intern("good");
  const std::vector<RecordItem> items = {{id, wrong[0]}, {good, {value, DType::kFloat32, two, {}}}};
  EXPECT_THROW(recorder_->record_batch(items), Error);
  recorder_->end_step();
  ASSERT_EQ(last().rows.size(), 1u);
  EXPECT_EQ(last().rows[0].tensor, good);
}

std::vector<FloatTensor> many_tensors() {
  std::vector<FloatTensor> tensors;
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<float> values(i * i * 17 % 3001);
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = std::sin(static_cast<float>(k * i)) * static_cast<float>(i);
    }
    tensors.emplace_back(std::move(values));
  }
  tensors.emplace_back(std::vector<float>(3'000'000, 1.25F));  // large enough to be split
  return tensors;
}

void expect_same(const StepRecord& found, const StepRecord& expected) {
  ASSERT_EQ(found.rows.size(), expected.rows.size());
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    const StatisticsRow& row = found.rows[i];
    const StatisticsRow& wanted = expected.rows[i];
    EXPECT_EQ(row.tensor, wanted.tensor);
    EXPECT_EQ(row.layout, wanted.layout);
    EXPECT_EQ(std::memcmp(&row.statistics, &wanted.statistics, sizeof(Statistics)), 0) << i;
    EXPECT_EQ(row.histogram.top, wanted.histogram.top);
    EXPECT_EQ(row.histogram.counts, wanted.histogram.counts);
  }
  ASSERT_EQ(found.raws.size(), expected.raws.size());
  for (std::size_t i = 0; i < expected.raws.size(); ++i) {
    const BufferPool::Buffer& raw = found.raws[i].data;
    const BufferPool::Buffer& wanted = expected.raws[i].data;
    ASSERT_EQ(raw.size_bytes, wanted.size_bytes);
    EXPECT_EQ(std::memcmp(raw.data.get(), wanted.data.get(), wanted.size_bytes), 0) << i;
  }
}

TEST_F(RecorderValueTest, RecordsABatchAsItRecordsOneByOne) {
  const std::vector<FloatTensor> tensors = many_tensors();
  for (const std::size_t threads : {0u, 2u}) {
    RecorderOptions options = recorder_options({"all"}, 1);
    options.reduction_config.save_raw_tensor = true;
    options.compute_threads = threads;
    start(std::move(options));
    sink_.steps.clear();
    for (const bool batched : {false, true, true}) {
      recorder_->begin_step();
      std::vector<RecordItem> items;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const TensorId id = recorder_->intern("t" + std::to_string(i));
        items.push_back({id, tensors[i].view()});
        if (!batched) recorder_->record(id, tensors[i].view());
      }
      if (batched) recorder_->record_batch(items);
      recorder_->end_step();
    }
    ASSERT_EQ(sink_.steps.size(), 3u);
    ASSERT_EQ(sink_.steps[0]->rows.size(), tensors.size());
    expect_same(*sink_.steps[1], *sink_.steps[0]);
    expect_same(*sink_.steps[2], *sink_.steps[0]);
  }
}

}  // namespace
}  // namespace tensortap
