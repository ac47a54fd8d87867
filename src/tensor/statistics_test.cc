#include "tensor/statistics.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tensor/dtype.h"

namespace tensortap {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Of the elements 3 and -1, and what is asked for beside them.
Statistics two_elements(std::uint64_t nan = 0, std::uint64_t positive = 0,
                        std::uint64_t negative = 0) {
  Statistics s;
  s.count = 2 + nan + positive + negative;
  s.nan_count = nan;
  s.positive_inf_count = positive;
  s.negative_inf_count = negative;
  s.min = -1;
  s.max = 3;
  s.mean = 1;
  s.variance = 4;
  s.abs_min = 1;
  s.abs_mean = 2;
  s.abs_variance = 1;
  return s;
}

TEST(StatisticTable, rows_are_in_order_and_found_by_id_and_name) {
  std::set<std::string_view> names;
  std::uint8_t stored = 0;
  int last = -1;
  for (const StatisticDescriptor& row : statistic_table()) {
    EXPECT_GT(static_cast<int>(row.id), last);
    last = static_cast<int>(row.id);
    EXPECT_EQ(&statistic_descriptor(row.id), &row);
    EXPECT_EQ(statistic_from_name(row.name), row.id);
    EXPECT_EQ(row.is_stored, static_cast<int>(row.id) < kStoredStatisticCount) << row.name;
    EXPECT_FALSE(row.doc.empty());
    names.insert(row.name);
    stored += row.is_stored;
  }
  EXPECT_EQ(stored, kStoredStatisticCount);
  EXPECT_EQ(names.size(), statistic_table().size());
  EXPECT_EQ(last, static_cast<int>(StatisticId::kFiniteCount));
}

TEST(StatisticTable, names_of_smdebug) {
  EXPECT_EQ(statistic_from_name("l1_norm"), StatisticId::kL1);
  EXPECT_EQ(statistic_from_name("abs_l2_norm"), StatisticId::kL2);
  EXPECT_EQ(statistic_from_name("abs_sum"), StatisticId::kL1);
  EXPECT_EQ(statistic_from_name("abs_max"), StatisticId::kAbsMax);
  EXPECT_EQ(statistic_from_name("abs_std"), StatisticId::kAbsStd);
  EXPECT_EQ(statistic_from_name("median"), std::nullopt);
  EXPECT_EQ(statistic_from_name(""), std::nullopt);
}

TEST(StatisticValue, derived_from_the_stored_ones) {
  const Statistics s = two_elements(1, 2, 3);
  EXPECT_EQ(statistic_value(s, StatisticId::kStd), 2.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kSum), 2.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kL1), 4.0);
  EXPECT_NEAR(statistic_value(s, StatisticId::kL2), std::sqrt(10.0), 1e-15);
  EXPECT_NEAR(statistic_value(s, StatisticId::kRms), std::sqrt(5.0), 1e-15);
  EXPECT_EQ(statistic_value(s, StatisticId::kAbsMax), 3.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kAbsStd), 1.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kInfCount), 5.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kFiniteCount), 2.0);
  EXPECT_EQ(statistic_value(s, StatisticId::kCount), 8.0);
}

TEST(StatisticValue, a_norm_is_finite_when_its_square_is_not) {
  Statistics s = two_elements();
  s.abs_mean = 1e200;
  s.abs_variance = 0.0;
  EXPECT_NEAR(statistic_value(s, StatisticId::kL2) / 1e200, std::sqrt(2.0), 1e-15);
}

TEST(StatisticValue, nothing_finite_is_nan) {
  Statistics s;
  s.count = s.nan_count = 3;
  EXPECT_TRUE(std::isnan(statistic_value(s, StatisticId::kMean)));
  EXPECT_TRUE(std::isnan(statistic_value(s, StatisticId::kL2)));
  EXPECT_EQ(statistic_value(s, StatisticId::kNanCount), 3.0);
}

TEST(NumpyValue, nan_spoils_everything_but_counts) {
  const Statistics s = two_elements(1, 1, 0);
  for (const StatisticDescriptor& row : statistic_table()) {
    EXPECT_EQ(std::isnan(numpy_value(s, row.id)), !row.is_count) << row.name;
  }
  EXPECT_EQ(numpy_value(s, StatisticId::kNanCount), 1.0);
}

TEST(NumpyValue, infinities_go_where_arithmetic_takes_them) {
  const Statistics up = two_elements(0, 1, 0);
  EXPECT_EQ(numpy_value(up, StatisticId::kMin), -1.0);
  EXPECT_EQ(numpy_value(up, StatisticId::kMax), kInf);
  EXPECT_EQ(numpy_value(up, StatisticId::kMean), kInf);
  EXPECT_EQ(numpy_value(up, StatisticId::kAbsMin), 1.0);
  EXPECT_EQ(numpy_value(up, StatisticId::kL2), kInf);
  EXPECT_TRUE(std::isnan(numpy_value(up, StatisticId::kVariance)));
  EXPECT_TRUE(std::isnan(numpy_value(up, StatisticId::kAbsStd)));
  const Statistics down = two_elements(0, 0, 1);
  EXPECT_EQ(numpy_value(down, StatisticId::kMin), -kInf);
  EXPECT_EQ(numpy_value(down, StatisticId::kMax), 3.0);
  EXPECT_EQ(numpy_value(down, StatisticId::kSum), -kInf);
  EXPECT_EQ(numpy_value(down, StatisticId::kAbsMax), kInf);
  const Statistics both = two_elements(0, 1, 1);
  EXPECT_TRUE(std::isnan(numpy_value(both, StatisticId::kMean)));
  EXPECT_EQ(numpy_value(both, StatisticId::kAbsMean), kInf);
}

TEST(NumpyValue, infinities_alone) {
  Statistics s;
  s.count = s.positive_inf_count = 2;
  EXPECT_EQ(numpy_value(s, StatisticId::kMin), kInf);
  EXPECT_EQ(numpy_value(s, StatisticId::kAbsMin), kInf);
  s.negative_inf_count = 2;
  s.positive_inf_count = 0;
  EXPECT_EQ(numpy_value(s, StatisticId::kMax), -kInf);
  EXPECT_EQ(numpy_value(s, StatisticId::kAbsMin), kInf);
}

TEST(NumpyValue, the_sum_of_nothing_is_zero) {
  const Statistics s;
  EXPECT_EQ(numpy_value(s, StatisticId::kSum), 0.0);
  EXPECT_EQ(numpy_value(s, StatisticId::kL2), 0.0);
  EXPECT_TRUE(std::isnan(numpy_value(s, StatisticId::kMean)));
}

TEST(DTypeTable, names_sizes_and_codes) {
  for (std::uint8_t code = 1; code <= kDTypeMax; ++code) {
    const std::optional<DType> dtype = dtype_from_code(code);
    ASSERT_TRUE(dtype.has_value());
    EXPECT_EQ(static_cast<std::uint8_t>(*dtype), code);
    EXPECT_EQ(dtype_from_name(dtype_name(*dtype)), dtype);
    const std::string name(dtype_name(*dtype));
    EXPECT_EQ(dtype_is_complex(*dtype), name.starts_with("complex")) << name;
    EXPECT_EQ(dtype_is_floating(*dtype), name.find("float") != std::string::npos) << name;
    if (name.ends_with("64")) {
      EXPECT_EQ(dtype_size_bytes(*dtype), 8u) << name;
    }
    if (name.ends_with("16")) {
      EXPECT_EQ(dtype_size_bytes(*dtype), 2u) << name;
    }
    if (name.starts_with("float8")) {
      EXPECT_EQ(dtype_size_bytes(*dtype), 1u) << name;
    }
  }
  EXPECT_EQ(dtype_size_bytes(DType::kComplex128), 16u);
  EXPECT_EQ(dtype_size_bytes(DType::kBool), 1u);
  EXPECT_EQ(dtype_from_code(0), std::nullopt);
  EXPECT_EQ(dtype_from_code(kDTypeMax + 1), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
}

}  // namespace
}  // namespace tensortap
