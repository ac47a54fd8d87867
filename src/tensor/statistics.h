// The statistics of one tensor at one step, and the table that describes them. This is the one
// place a statistic is declared: trace columns, trial queries, Python names, CLI and docs read the
// table.
//
// All statistics are over the FINITE elements; NaN and infinities are counted beside them, so
// nothing is lost when one element goes bad. numpy_value() gives back what NumPy would have said
// for the whole tensor (NaN and Inf propagate). Accumulated in double. Complex tensors: statistics
// of |z|. Variance is the population variance (divide by N). With no finite element, min, max, mean
// and variance are NaN. Plain data; thread-safe as such.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/histogram.h"

namespace tensortap {

// What the kernels fill in and the trace stores. Everything else is derived from these.
struct Statistics {
  std::uint64_t count = 0;  // elements in all
  std::uint64_t nan_count = 0;
  std::uint64_t positive_inf_count = 0;
  std::uint64_t negative_inf_count = 0;
  std::uint64_t zero_count = 0;       // +0 and -0
  std::uint64_t subnormal_count = 0;  // subnormal in the tensor's own dtype; 0 for integers
  std::uint64_t overflow_count =
      0;  // finite, but |x| rounds above float16's 65504: lost by a cast to float16
  std::uint64_t underflow_count =
      0;  // not zero, but |x| <= 2^-25: flushed to zero by a cast to float16
  double min = 0.0;
  double max = 0.0;
  double mean = 0.0;
  double variance = 0.0;
  double abs_min = 0.0;
  double abs_mean = 0.0;
  double abs_variance = 0.0;

  std::uint64_t finite_count() const {
    return count - nan_count - positive_inf_count - negative_inf_count;
  }
};

// The numeric value is written into traces (column ids): never renumber, only append.
enum class StatisticId : std::uint8_t {
  // stored
  kCount = 0,
  kNanCount = 1,
  kPositiveInfCount = 2,
  kNegativeInfCount = 3,
  kZeroCount = 4,
  kSubnormalCount = 5,
  kOverflowCount = 6,
  kUnderflowCount = 7,
  kMin = 8,
  kMax = 9,
  kMean = 10,
  kVariance = 11,
  kAbsMin = 12,
  kAbsMean = 13,
  kAbsVariance = 14,
  // derived from the stored ones
  kStd = 32,
  kSum = 33,
  kL1 = 34,
  kL2 = 35,
  kRms = 36,
  kAbsMax = 37,
  kAbsStd = 38,
  kInfCount = 39,
  kFiniteCount = 40,
};

inline constexpr std::uint8_t kStoredStatisticCount = 15;

struct StatisticDescriptor {
  StatisticId id;
  std::string_view name;     // "abs_mean": the name in C++, Python, JSON and CLI
  bool is_stored;            // a column of the trace; otherwise computed from the stored ones
  bool is_count;             // an unsigned integer; otherwise a double
  std::string_view unit;     // "elements", "tensor unit", "tensor unit squared"
  std::string_view formula;  // "sum(|x|) / n"
  std::string_view doc;      // one sentence
};

// In StatisticId order.
std::span<const StatisticDescriptor> statistic_table();
const StatisticDescriptor& statistic_descriptor(StatisticId id);
// Accepts the table's names and the aliases of smdebug ("l1_norm", "abs_l2_norm", "abs_max",
// "abs_std").
std::optional<StatisticId> statistic_from_name(std::string_view name);

// The value over the finite elements (counts as double). Always defined; NaN when nothing is
// finite.
double statistic_value(const Statistics& statistics, StatisticId id);
// What NumPy computes over ALL elements in float64: NaN and infinities propagate.
double numpy_value(const Statistics& statistics, StatisticId id);

}  // namespace tensortap
