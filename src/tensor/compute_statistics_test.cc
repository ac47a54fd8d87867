#include "tensor/compute_statistics.h"

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/thread_pool.h"
#include "tensor/reference_for_test.h"

namespace tensortap {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Every test runs on every SIMD target of the machine.
class ComputeStatistics : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override { force_simd_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Targets, ComputeStatistics, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

void expect_near_or_same(double got, double want, double tolerance, const char* name) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << name << " " << got;
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want) << name;
  } else {
    EXPECT_LE(std::fabs(got - want), tolerance) << name << " got " << got << " want " << want;
  }
}

void expect_same_counts(const Statistics& got, const Statistics& want) {
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.nan_count, want.nan_count);
  EXPECT_EQ(got.positive_inf_count, want.positive_inf_count);
  EXPECT_EQ(got.negative_inf_count, want.negative_inf_count);
  EXPECT_EQ(got.zero_count, want.zero_count);
  EXPECT_EQ(got.subnormal_count, want.subnormal_count);
  EXPECT_EQ(got.overflow_count, want.overflow_count);
  EXPECT_EQ(got.underflow_count, want.underflow_count);
}

void expect_statistics(const Statistics& got, const Statistics& want) {
  expect_same_counts(got, want);
  expect_near_or_same(got.min, want.min, 0.0, "min");
  expect_near_or_same(got.max, want.max, 0.0, "max");
  expect_near_or_same(got.abs_min, want.abs_min, 0.0, "abs_min");
  // Rounding of the last subnormal digit aside, a sum's error is relative to the sum of magnitudes.
  const double digit = 4 * std::numeric_limits<double>::denorm_min();
  expect_near_or_same(got.mean, want.mean, 1e-12 * want.abs_mean + digit, "mean");
  expect_near_or_same(got.abs_mean, want.abs_mean, 1e-12 * want.abs_mean + digit, "abs_mean");
  expect_near_or_same(got.variance, want.variance, 1e-9 * want.variance + digit, "variance");
  expect_near_or_same(got.abs_variance, want.abs_variance, 1e-9 * want.abs_variance + digit,
                      "abs_variance");
}

void expect_histogram(const Histogram& got, const Histogram& want) {
  EXPECT_EQ(got.top, want.top);
  EXPECT_EQ(got.counts, want.counts);
}

// Computes with and without a histogram and compares both with the reference.
void check(DType dtype, const void* data, std::size_t count) {
  std::vector<double> values(count);
  const std::size_t size = dtype_size_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = reference::element_value(dtype, static_cast<const std::byte*>(data) + i * size);
  }
  const auto extent = static_cast<std::int64_t>(count);
  const TensorView view{data, dtype, {&extent, 1}, {}};
  const Statistics want = reference::statistics(values, reference::smallest_normal(dtype));
  Statistics got;
  Histogram histogram;
  histogram.counts.fill(99);  // what was there before does not matter
  compute_statistics(view, got, &histogram);
  expect_statistics(got, want);
  expect_histogram(histogram, reference::histogram(values));
  Statistics without;
  compute_statistics(view, without, nullptr);
  EXPECT_EQ(std::memcmp(&got, &without, sizeof got), 0);
}

void check(const std::vector<double>& x) { check(DType::kFloat64, x.data(), x.size()); }
void check(const std::vector<float>& x) { check(DType::kFloat32, x.data(), x.size()); }
void check_both(const std::vector<double>& x) {
  check(x);
  check(std::vector<float>(x.begin(), x.end()));
}

std::vector<double> normal_numbers(std::size_t n, double mean, double std, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, std);
  std::vector<double> x(n);
  for (double& v : x) v = normal(random);
  return x;
}

TEST_P(ComputeStatistics, every_length_up_to_300) {
  for (std::size_t n = 0; n <= 300; ++n) {
    SCOPED_TRACE(n);
    check_both(normal_numbers(n, 0.1, 1.0, static_cast<unsigned>(n)));
  }
}

TEST_P(ComputeStatistics, lengths_around_blocks_and_chunks) {
  for (const std::size_t block : {512u, 1024u, 2048u, 4096u, 65536u, 131072u, 262144u}) {
    for (const int off : {-65, -1, 0, 1, 33}) {
      SCOPED_TRACE(testing::Message() << block << " + " << off);
      check_both(normal_numbers(block + static_cast<std::size_t>(off), -3.0, 2.0));
    }
  }
}

TEST_P(ComputeStatistics, more_chunks_than_the_least_size_gives) {
  check(normal_numbers(4'300'001, 1.0, 1.0));
}

// Every bucket of the window and far below it, and blocks that leave whole parts of the window
// empty.
TEST_P(ComputeStatistics, magnitudes_spread_over_octaves) {
  struct Spread {
    double octaves;
    double negative_share;
    double zero_share;
  };
  std::mt19937_64 random(8);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (const Spread& spread : {Spread{40, 0.5, 0}, Spread{15, 0, 0}, Spread{7, 1, 0},
                               Spread{0.3, 0.5, 0.1}, Spread{16, 0, 0.5}, Spread{5, 0.02, 0.01}}) {
    for (const std::size_t n : {100u, 511u, 512u, 600u, 4095u, 30'000u}) {
      SCOPED_TRACE(testing::Message() << spread.octaves << " octaves, " << n);
      std::vector<double> x(n);
      for (double& v : x) {
        v = std::exp2(-spread.octaves * uniform(random));
        if (uniform(random) < spread.zero_share) v = 0.0;
        if (uniform(random) < spread.negative_share) v = -v;
      }
      check_both(x);
    }
  }
}

TEST_P(ComputeStatistics, scales_from_the_smallest_to_the_largest) {
  for (int exponent = -1074; exponent <= 1020; exponent += 7) {
    SCOPED_TRACE(exponent);
    std::vector<double> x = normal_numbers(300, 0.0, 1.0);
    for (double& v : x) v = std::ldexp(v, exponent);
    // Where squares are subnormal, two orders of summation may differ in every digit.
    if (exponent > -480 && exponent < 480) check(x);
    if (exponent > -160 && exponent < 120) check(std::vector<float>(x.begin(), x.end()));
  }
}

TEST_P(ComputeStatistics, means_far_larger_than_deviations) {
  for (const double mean : {1.0, 0.97, -5.0, 1e8, -1e12, 1e100}) {
    for (const double ratio : {1e-1, 1e-2, 1e-4, 1e-8, 1e-11}) {
      SCOPED_TRACE(testing::Message() << mean << " " << ratio);
      check(normal_numbers(10'000, mean, std::fabs(mean) * ratio));
      check(normal_numbers(70'000, mean, std::fabs(mean) * ratio));
    }
  }
  for (const double std : {0.1, 1e-2, 1e-4, 1e-6}) {
    const std::vector<double> x = normal_numbers(20'000, 0.97, std);
    check(std::vector<float>(x.begin(), x.end()));
  }
}

TEST_P(ComputeStatistics, a_constant_has_no_variance) {
  for (const double value : {0.1, -0.1, 1.0, 1e300, -1e-300, 0.0, 1.7e308}) {
    const std::vector<double> x(100'003, value);
    const auto extent = static_cast<std::int64_t>(x.size());
    Statistics s;
    compute_statistics({x.data(), DType::kFloat64, {&extent, 1}, {}}, s, nullptr);
    EXPECT_EQ(s.variance, 0.0) << value;
    EXPECT_EQ(s.abs_variance, 0.0) << value;
    EXPECT_EQ(s.mean, value);
    EXPECT_EQ(s.abs_mean, std::fabs(value));
  }
}

TEST_P(ComputeStatistics, magnitudes_that_are_constant_under_alternating_signs) {
  std::vector<double> x(10'001, 0.3);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -0.3;
  check_both(x);
  for (double& v : x) v *= 1e30;
  check_both(x);
}

TEST_P(ComputeStatistics, the_mean_of_huge_numbers_is_finite) {
  std::vector<double> x(5000, 1.7e308);
  x[17] = 1.6e308;
  for (std::size_t i = 2500; i < x.size(); ++i) x[i] = -1.5e308;
  const auto extent = static_cast<std::int64_t>(x.size());
  Statistics s;
  compute_statistics({x.data(), DType::kFloat64, {&extent, 1}, {}}, s, nullptr);
  const Statistics want = reference::statistics(x, std::numeric_limits<double>::min());
  EXPECT_NEAR(s.mean / want.mean, 1.0, 1e-12);
  EXPECT_NEAR(s.abs_mean / want.abs_mean, 1.0, 1e-12);
  EXPECT_EQ(s.variance, kInf);
  EXPECT_EQ(s.nan_count + s.positive_inf_count, 0u);
}

TEST_P(ComputeStatistics, a_nan_or_infinity_at_every_position) {
  const std::vector<double> plain = normal_numbers(70, 0.0, 1.0);
  for (const double special : {kNaN, -kNaN, kInf, -kInf}) {
    for (std::size_t at = 0; at < plain.size(); ++at) {
      SCOPED_TRACE(testing::Message() << special << " at " << at);
      std::vector<double> x = plain;
      x[at] = special;
      check_both(x);
      x[(at * 7 + 3) % x.size()] = -special;
      check_both(x);
    }
  }
}

TEST_P(ComputeStatistics, nothing_finite) {
  check_both({kNaN});
  check_both({kInf, -kInf, kNaN, kInf});
  check_both(std::vector<double>(5000, -kInf));
}

// Float bit patterns of every kind: quiet and signalling NaN, infinities, subnormal numbers, zeros.
TEST_P(ComputeStatistics, random_bits) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::size_t n = 1 + random() % 9000;
    std::vector<float> narrow(n);
    std::vector<double> wide(n);
    for (float& v : narrow) v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const std::uint64_t mask = round % 2 == 0 ? 0x9fffffffffffffff : 0xbfffffffffffffff;
    for (double& v : wide) {
      v = std::bit_cast<double>(random() & mask);
      // Keeps squares inside double, where the reference has them too.
      if (std::fabs(v) > 1e150 || std::fabs(v) < 1e-150) v = 0.0;
    }
    check(narrow);
    check(wide);
  }
}

TEST_P(ComputeStatistics, special_values_between_ordinary_ones) {
  const std::vector<double> specials = {
      0.0,     -0.0,           5e-324,   -5e-324,  1e-45,           -1e-45,   1e-39,
      0x1p-25, 0x1.000002p-25, -0x1p-25, 0x1p-24,  65504,           65519.99, 65520,
      -65520,  65536,          3e38,     0x1p-126, 0x1.fffffcp-127, kNaN,     kInf};
  std::mt19937_64 random(9);
  for (const std::size_t n : {40u, 500u, 5000u}) {
    std::vector<double> x = normal_numbers(n, 0.0, 1.0);
    for (double& v : x) {
      if (random() % 3 == 0) v = specials[random() % specials.size()];
    }
    check_both(x);
  }
}

TEST_P(ComputeStatistics, subnormal_numbers_only) {
  std::mt19937_64 random(3);
  std::vector<float> narrow(777);
  std::vector<double> wide(777);
  for (float& v : narrow)
    v = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffff);
  for (double& v : wide) v = std::bit_cast<double>(random() & 0x800fffffffffffff);
  check(narrow);
  check(wide);
}

TEST_P(ComputeStatistics, settings_of_the_floating_point_unit_neither_matter_nor_change) {
#if defined(__x86_64__)
  const std::vector<float> x(50, 1e-40f);
  const auto extent = static_cast<std::int64_t>(x.size());
  Statistics s;
  Histogram h;
  const unsigned before = __builtin_ia32_stmxcsr();
  const unsigned flush_all = before | 0x8040;  // flush-to-zero, denormals-are-zero
  __builtin_ia32_ldmxcsr(flush_all);
  compute_statistics({x.data(), DType::kFloat32, {&extent, 1}, {}}, s, &h);
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(after, flush_all);
  EXPECT_EQ(s.mean, static_cast<double>(1e-40f));
  EXPECT_EQ(s.subnormal_count, 50u);
  EXPECT_EQ(h.counts[63], 50u);
#endif
}

// One element at a time, so that nothing hides in a sum.
TEST_P(ComputeStatistics, every_bit_pattern_of_the_small_float_types) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN,
                            DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ}) {
    const std::uint32_t patterns = dtype_size_bytes(dtype) == 2 ? 65536 : 256;
    for (std::uint32_t bits = 0; bits < patterns && !HasFailure(); ++bits) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << bits);
      const auto narrow = static_cast<std::uint16_t>(bits);
      check(dtype, &narrow, 1);  // little-endian: the first byte is the float8
    }
  }
}

TEST_P(ComputeStatistics, random_bits_of_every_dtype) {
  std::mt19937_64 random(11);
  for (std::uint8_t code = 1; code <= kDTypeMax; ++code) {
    const DType dtype = *dtype_from_code(code);
    if (dtype == DType::kFloat64 || dtype == DType::kComplex128) continue;  // squares overflow
    for (const std::size_t n : {1u, 5u, 67u, 4099u, 20'000u}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << n);
      std::vector<std::uint64_t> words(n * 2);
      for (std::uint64_t& word : words) word = random();
      check(dtype, words.data(), n);
    }
  }
}

TEST_P(ComputeStatistics, magnitudes_of_complex_numbers) {
  const std::vector<double> parts = {3, 4,      -0.0,    0.0,     1e200,  1e200, 1e-200, -1e-200,
                                     0, 1e-320, kInf,    kNaN,    kNaN,   -kInf, kNaN,   1.0,
                                     0, kNaN,   1.7e308, 1.7e308, 5e-324, 0,     1.0,    1e-300};
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    SCOPED_TRACE(testing::Message() << parts[i] << " " << parts[i + 1]);
    const double want = std::hypot(parts[i], parts[i + 1]);
    const std::int64_t extent = 1;
    Statistics s;
    compute_statistics({&parts[i], DType::kComplex128, {&extent, 1}, {}}, s, nullptr);
    EXPECT_EQ(s.nan_count, std::isnan(want) ? 1u : 0u);
    EXPECT_EQ(s.positive_inf_count, std::isinf(want) ? 1u : 0u);
    if (std::isfinite(want)) {
      expect_near_or_same(s.max, want, 4e-16 * want + 5e-324, "max");
    }
  }
}

TEST_P(ComputeStatistics, memory_that_is_not_aligned) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kFloat16}) {
    std::vector<std::byte> bytes(8 * 1000 + 1);
    std::mt19937_64 random(2);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0x3f);
    check(dtype, bytes.data() + 1, 1000);
  }
}

TEST(ComputeStatisticsTargets, asking_for_the_names_leaves_a_forced_target_in_force) {
  std::vector<double> x = normal_numbers(1000, 0.0, 1.0);
  const auto extent = static_cast<std::int64_t>(x.size());
  const TensorView view{x.data(), DType::kFloat64, {&extent, 1}, {}};
  const std::vector<std::string> targets = simd_targets();
  force_simd_target(targets.back());  // sums in another order than the best
  Statistics want, got;
  compute_statistics(view, want, nullptr);
  EXPECT_EQ(simd_targets(), targets);
  compute_statistics(view, got, nullptr);
  force_simd_target("");
  EXPECT_EQ(std::memcmp(&got, &want, sizeof got), 0);
}

TEST(ComputeStatisticsTargets, an_unknown_name_is_refused_with_the_valid_ones) {
  ASSERT_FALSE(simd_targets().empty());
  try {
    force_simd_target("MMX");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(simd_targets().front()), std::string::npos);
  }
}

}  // namespace
}  // namespace tensortap
