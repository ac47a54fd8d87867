#include "rules/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trial/record_for_test.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::optional<TensorValues> first_value(const TestTensor& tensor) {
  RecordMaker maker;
  const auto record = maker.make(global_step(0), {tensor});
  const WorkerStep worker{"worker_0", 0, record.get(), &maker.dictionary()};
  return values_of(worker, record->rows.front());
}

TEST(Values, OfARawTensorInItsShape) {
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kInt8, DType::kInt64}) {
    TestTensor tensor{"t", {1, -2, 3, 4, -5, 6}, {}, dtype, true};
    tensor.shape = {2, 3};
    const auto values = first_value(tensor);
    ASSERT_TRUE(values) << dtype_name(dtype);
    EXPECT_THAT(values->shape, ElementsAre(2, 3));
    EXPECT_THAT(values->elements, ElementsAre(1, -2, 3, 4, -5, 6)) << dtype_name(dtype);
  }
}

TEST(Values, OfATensorLongerThanABlock) {
  std::vector<double> numbers(10'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  EXPECT_EQ(first_value({"t", numbers, {}, DType::kFloat32, true})->elements, numbers);
  EXPECT_EQ(first_value({"t", numbers, {}, DType::kInt32, true})->elements, numbers);
}

TEST(Values, OneElementNeedsNoRawValueAndMoreDo) {
  EXPECT_THAT(first_value({"t", {0.5}})->elements, ElementsAre(0.5));
  EXPECT_THAT(first_value({"t", {0.5}})->shape, IsEmpty());
  EXPECT_THAT(first_value({"t", {}})->elements, IsEmpty());
  EXPECT_FALSE(first_value({"t", {0.5, 1.0}}));
}

}  // namespace
}  // namespace tensortap
