// Views that are not C-contiguous: copy_dense, and statistics through any strides.

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compute_statistics.h"
#include "tensor/tensor_view.h"

namespace tensortap {
namespace {

using Extents = std::vector<std::int64_t>;

// A view into float memory, with strides in elements.
struct Case {
  const char* name;
  std::int64_t first;
  Extents shape;
  Extents strides;
  bool is_dense;
  bool is_c_contiguous;
};

const std::vector<Case> kCases = {
    {"zero-dimensional", 5, {}, {}, true, true},
    {"empty", 0, {3, 0, 2}, {7, 1, 9}, true, true},
    {"contiguous", 0, {4, 5, 6}, {30, 6, 1}, true, true},
    {"one element with odd strides", 3, {1, 1}, {100, -7}, true, true},
    {"dimension of one with an odd stride", 0, {4, 1, 6}, {6, 999, 1}, true, true},
    {"transposed", 0, {6, 5}, {1, 6}, true, false},
    {"permuted", 0, {5, 4, 6}, {6, 30, 1}, true, false},
    {"permuted with a dimension of one", 0, {5, 1, 4}, {1, 3, 5}, true, false},
    {"every second", 0, {50}, {2}, false, false},
    {"reversed", 99, {100}, {-1}, false, false},
    {"expanded", 0, {7, 10}, {0, 1}, false, false},
    {"expanded inside", 0, {10, 7}, {1, 0}, false, false},
    {"expanded scalar", 4, {100, 100}, {0, 0}, false, false},
    {"slice of a matrix", 3, {20, 5}, {10, 1}, false, false},
    {"overlapping windows", 0, {30, 8}, {1, 1}, false, false},
    {"equal strides", 0, {2, 2}, {1, 1}, false, false},
    {"gap before the last dimension", 0, {3, 4}, {5, 1}, false, false},
    {"negative rows", 90, {10, 10}, {-10, 1}, false, false},
    {"five dimensions", 7, {3, 2, 4, 2, 3}, {200, 90, 20, 7, 2}, false, false},
};

class Strided : public testing::TestWithParam<Case> {
 protected:
  Strided() : memory_(40'000) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& v : memory_) v = normal(random);
    strides_bytes_ = GetParam().strides;
    for (std::int64_t& stride : strides_bytes_) stride *= 4;
  }
  TensorView view() const {
    const Case& c = GetParam();
    return {memory_.data() + c.first, DType::kFloat32, c.shape, strides_bytes_};
  }
  // By the definition of strides: one index vector an element.
  std::vector<float> gathered() const {
    const Case& c = GetParam();
    const std::int64_t count = view().element_count();
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t at = c.first;
      std::int64_t rest = i;
      for (std::size_t k = c.shape.size(); k-- > 0;) {
        at += rest % c.shape[k] * c.strides[k];
        rest /= c.shape[k];
      }
      out.push_back(memory_[static_cast<std::size_t>(at)]);
    }
    return out;
  }

  std::vector<float> memory_;
  Extents strides_bytes_;
};

INSTANTIATE_TEST_SUITE_P(Views, Strided, testing::ValuesIn(kCases), [](const auto& test_case) {
  std::string name = test_case.param.name;
  for (char& c : name) c = c == ' ' || c == '-' ? '_' : c;
  return name;
});

TEST_P(Strided, layout_is_recognised) {
  EXPECT_EQ(view().is_dense(), GetParam().is_dense);
  EXPECT_EQ(view().is_c_contiguous(), GetParam().is_c_contiguous);
}

TEST_P(Strided, copy_is_in_c_order) {
  const std::vector<float> want = gathered();
  std::vector<float> got(want.size() + 1, -77.0f);
  copy_dense(view(), got.data());
  EXPECT_EQ(got.back(), -77.0f);
  got.pop_back();
  EXPECT_EQ(got, want);
}

TEST_P(Strided, statistics_are_those_of_the_copy) {
  const std::vector<float> copy = gathered();
  const auto extent = static_cast<std::int64_t>(copy.size());
  Statistics want, got;
  Histogram want_histogram, got_histogram;
  compute_statistics({copy.data(), DType::kFloat32, {&extent, 1}, {}}, want, &want_histogram);
  compute_statistics(view(), got, &got_histogram);
  EXPECT_EQ(got_histogram.counts, want_histogram.counts);
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.zero_count, want.zero_count);
  if (copy.empty()) return;
  EXPECT_EQ(got.min, want.min);
  EXPECT_EQ(got.abs_min, want.abs_min);
  if (GetParam().is_dense) {  // may be read in another order
    EXPECT_NEAR(got.mean, want.mean, 1e-14);
    EXPECT_NEAR(got.variance, want.variance, 1e-14);
  } else {
    EXPECT_EQ(std::memcmp(&got, &want, sizeof got), 0);
  }
}

std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 37 % 251); }

// Many blocks and chunks: the walk has to resume in the middle of rows.
TEST(StridedLarge, every_element_size_across_blocks) {
  for (const DType dtype :
       {DType::kUInt8, DType::kBFloat16, DType::kInt32, DType::kFloat64, DType::kComplex128}) {
    const auto size = static_cast<std::int64_t>(dtype_size_bytes(dtype));
    const Extents shape = {37, 101, 53};  // about 200,000 elements: several chunks
    const Extents strides = {size, size * 2 * 37, size * 2 * 37 * 101};
    std::vector<std::byte> memory(static_cast<std::size_t>(size) * 2 * 37 * 101 * 53);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = pattern(i) & std::byte{0x3f};
    const TensorView view{memory.data(), dtype, shape, strides};
    ASSERT_FALSE(view.is_dense());
    std::vector<std::byte> copy(view.size_bytes());
    copy_dense(view, copy.data());
    Statistics want, got;
    Histogram want_histogram, got_histogram;
    compute_statistics({copy.data(), dtype, shape, {}}, want, &want_histogram);
    compute_statistics(view, got, &got_histogram);
    EXPECT_EQ(std::memcmp(&got, &want, sizeof got), 0) << dtype_name(dtype);
    EXPECT_EQ(got_histogram.counts, want_histogram.counts) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace tensortap
