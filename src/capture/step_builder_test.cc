#include "capture/step_builder.h"

#include <gtest/gtest.h>

#include "capture/tensor_table.h"

namespace tensortap {
namespace {

class StepBuilderTest : public ::testing::Test {
 protected:
  void put_row(TensorId tensor, double mean) {
    StatisticsRow row;
    row.tensor = tensor;
    row.statistics.mean = mean;
    builder_.put_row(row);
  }
  void put_raw(TensorId tensor, std::size_t size_bytes) {
    builder_.put_raw({tensor, 0, buffers_.acquire(size_bytes)});
  }
  BufferPool buffers_{1 << 20};
  StepPool pool_{2};
  StepBuilder builder_{pool_};
};

TEST_F(StepBuilderTest, KeepsTheLatestOfEachTensor) {
  put_row(5, 1.0);
  put_row(2, 2.0);
  put_row(5, 3.0);
  builder_.put_text(9, "first");
  builder_.put_text(9, "second");
  const auto record = builder_.take();
  ASSERT_EQ(record->rows.size(), 2u);
  EXPECT_EQ(record->rows[0].tensor, 5u);
  EXPECT_EQ(record->rows[0].statistics.mean, 3.0);
  EXPECT_EQ(record->rows[1].statistics.mean, 2.0);
  ASSERT_EQ(record->texts.size(), 1u);
  EXPECT_EQ(record->texts[0].text, "second");
}

TEST_F(StepBuilderTest, DropsTheRawValueOfARowThatIsReplaced) {
  for (const TensorId tensor : {0u, 1u, 2u}) {
    put_row(tensor, 0.0);
    put_raw(tensor, 8 * (tensor + 1));
  }
  put_row(0, 1.0);
  EXPECT_FALSE(builder_.has_raw(0));
  EXPECT_TRUE(builder_.has_raw(2));
  put_row(2, 1.0);  // moved into the gap: must still be found
  put_raw(2, 800);
  const auto record = builder_.take();
  ASSERT_EQ(record->raws.size(), 2u);
  for (const RawTensor& raw : record->raws) {
    EXPECT_EQ(raw.data.size_bytes, raw.tensor == 1 ? 16u : 800u) << raw.tensor;
  }
}

TEST_F(StepBuilderTest, GivesATensorWhatAnotherHas) {
  put_row(3, 7.0);
  put_raw(3, 24);
  put_row(4, 8.0);
  EXPECT_TRUE(builder_.put_same(5, 3, false, true));
  EXPECT_TRUE(builder_.put_same(6, 3, false, false));
  EXPECT_FALSE(builder_.put_same(7, 4, false, true));  // no raw value to give
  EXPECT_FALSE(builder_.put_same(7, 4, true, false));  // no histogram to give
  EXPECT_FALSE(builder_.put_same(7, 9, false, false));
  EXPECT_FALSE(builder_.put_same(3, 3, false, false));
  const auto record = builder_.take();
  ASSERT_EQ(record->rows.size(), 4u);
  EXPECT_EQ(record->rows[2].tensor, 5u);
  EXPECT_EQ(record->rows[2].statistics.mean, 7.0);
  EXPECT_EQ(record->rows[3].tensor, 6u);
  ASSERT_EQ(record->raws.size(), 2u);
  EXPECT_EQ(record->raws[1].tensor, 5u);
  EXPECT_EQ(record->raws[1].data.size_bytes, 24u);
  EXPECT_FALSE(builder_.put_same(8, 3, false, false));  // of the step before
}

TEST_F(StepBuilderTest, ForgetsTheLastStep) {
  put_row(0, 1.0);
  put_raw(0, 8);
  const auto first = builder_.take();
  EXPECT_TRUE(builder_.is_empty());
  EXPECT_FALSE(builder_.has_raw(0));
  EXPECT_EQ(builder_.take(), nullptr);
  put_row(0, 2.0);
  const auto second = builder_.take();
  EXPECT_EQ(first->rows[0].statistics.mean, 1.0);
  ASSERT_EQ(second->rows.size(), 1u);
  EXPECT_TRUE(second->raws.empty());
}

TEST(StepPool, GivesARecordAgainClearedAndWithItsMemory) {
  StepPool pool(1);
  const StepRecord* address = nullptr;
  {
    const auto record = pool.acquire();
    address = record.get();
    record->rows.resize(300);
    record->info.step = 7;
  }
  const auto again = pool.acquire();
  EXPECT_EQ(again.get(), address);
  EXPECT_TRUE(again->rows.empty());
  EXPECT_EQ(again->info.step, 0);
  EXPECT_GE(again->rows.capacity(), 300u);
}

TEST(StepPool, MayDieBeforeItsRecords) {
  std::shared_ptr<const StepRecord> record;
  {
    StepPool pool(4);
    record = pool.acquire();
  }
  EXPECT_TRUE(record->rows.empty());
  record.reset();
}

TEST(TensorTable, GivesEveryLayoutOneIdAndEveryDefinitionOnce) {
  TensorTable table({{{"old", {}}}, {{DType::kFloat32, {2}}}});
  EXPECT_EQ(table.find("old"), TensorId{0});
  const TensorId a = table.add("a", {"weights"});
  const TensorId b = table.add("b", {});
  EXPECT_EQ(a, 1u);
  const std::vector<std::int64_t> wide = {2, 3};
  const std::vector<std::int64_t> flat = {2};
  EXPECT_EQ(table.intern_layout(a, DType::kFloat32, flat), 0u);
  EXPECT_EQ(table.intern_layout(a, DType::kFloat32, wide), 1u);
  EXPECT_EQ(table.intern_layout(b, DType::kFloat32, wide), 1u);
  EXPECT_EQ(table.intern_layout(b, DType::kFloat64, wide), 2u);
  EXPECT_EQ(table.intern_layout(a, DType::kFloat32, wide), 1u);
  EXPECT_EQ(table.intern_layout(a, DType::kFloat32, {}), 3u);

  StepRecord record;
  table.correct_collections(a, {"custom"});
  table.give_new_definitions(record);
  ASSERT_EQ(record.new_tensors.size(), 2u);  // not "old": an earlier session gave it
  EXPECT_EQ(record.new_tensors[0].collections, std::vector<std::string>{"custom"});
  EXPECT_EQ(record.new_layouts.size(), 3u);

  table.correct_collections(a, {"too late"});
  EXPECT_EQ(table.dictionary().tensors[a].collections, std::vector<std::string>{"custom"});
  table.give_new_definitions(record);
  EXPECT_TRUE(record.new_tensors.empty());
  EXPECT_TRUE(record.new_layouts.empty());
}

}  // namespace
}  // namespace tensortap
