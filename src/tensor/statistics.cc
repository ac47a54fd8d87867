#include "tensor/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace tensortap {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr std::string_view kElements = "elements";
constexpr std::string_view kUnit = "tensor unit";
constexpr std::string_view kUnitSquared = "tensor unit squared";

constexpr std::array<StatisticDescriptor, 24> kTable = {{
    {StatisticId::kCount, "count", true, true, kElements, "n_all",
     "Number of elements, finite or not."},
    {StatisticId::kNanCount, "nan_count", true, true, kElements, "sum(isnan(x))",
     "Number of NaN elements."},
    {StatisticId::kPositiveInfCount, "positive_inf_count", true, true, kElements, "sum(x == +inf)",
     "Number of positive infinities."},
    {StatisticId::kNegativeInfCount, "negative_inf_count", true, true, kElements, "sum(x == -inf)",
     "Number of negative infinities."},
    {StatisticId::kZeroCount, "zero_count", true, true, kElements, "sum(x == 0)",
     "Number of zeros, of either sign."},
    {StatisticId::kSubnormalCount, "subnormal_count", true, true, kElements,
     "sum(0 < |x| < smallest_normal)",
     "Number of subnormal elements in the tensor's own dtype; 0 for integers."},
    {StatisticId::kOverflowCount, "overflow_count", true, true, kElements, "sum(|x| >= 65520)",
     "Number of finite elements that a cast to float16 would turn into infinity."},
    {StatisticId::kUnderflowCount, "underflow_count", true, true, kElements,
     "sum(0 < |x| <= 2^-25)",
     "Number of nonzero elements that a cast to float16 would flush to zero."},
    {StatisticId::kMin, "min", true, false, kUnit, "min(x)", "Smallest finite element."},
    {StatisticId::kMax, "max", true, false, kUnit, "max(x)", "Largest finite element."},
    {StatisticId::kMean, "mean", true, false, kUnit, "sum(x) / n", "Mean of the finite elements."},
    {StatisticId::kVariance, "variance", true, false, kUnitSquared, "sum((x - mean)^2) / n",
     "Population variance of the finite elements."},
    {StatisticId::kAbsMin, "abs_min", true, false, kUnit, "min(|x|)",
     "Smallest magnitude of a finite element."},
    {StatisticId::kAbsMean, "abs_mean", true, false, kUnit, "sum(|x|) / n",
     "Mean magnitude of the finite elements."},
    {StatisticId::kAbsVariance, "abs_variance", true, false, kUnitSquared,
     "sum((|x| - abs_mean)^2) / n",
     "Population variance of the magnitudes of the finite elements."},
    {StatisticId::kStd, "std", false, false, kUnit, "sqrt(variance)",
     "Population standard deviation of the finite elements."},
    {StatisticId::kSum, "sum", false, false, kUnit, "mean * n", "Sum of the finite elements."},
    {StatisticId::kL1, "l1", false, false, kUnit, "abs_mean * n",
     "Sum of the magnitudes of the finite elements."},
    {StatisticId::kL2, "l2", false, false, kUnit, "sqrt(n * (abs_variance + abs_mean^2))",
     "Euclidean norm of the finite elements."},
    {StatisticId::kRms, "rms", false, false, kUnit, "sqrt(abs_variance + abs_mean^2)",
     "Root of the mean square of the finite elements."},
    {StatisticId::kAbsMax, "abs_max", false, false, kUnit, "max(|min|, |max|)",
     "Largest magnitude of a finite element."},
    {StatisticId::kAbsStd, "abs_std", false, false, kUnit, "sqrt(abs_variance)",
     "Population standard deviation of the magnitudes of the finite elements."},
    {StatisticId::kInfCount, "inf_count", false, true, kElements,
     "positive_inf_count + negative_inf_count", "Number of infinities of either sign."},
    {StatisticId::kFiniteCount, "finite_count", false, true, kElements,
     "n = count - nan_count - inf_count", "Number of elements that are neither NaN nor infinite."},
}};

// The names smdebug's reductions have where they differ from the table's. The norm, sum and mean of
// |x| that smdebug asks for with abs=True are the table's l1, l2 and abs_mean.
constexpr std::array<std::pair<std::string_view, StatisticId>, 7> kAliases = {{
    {"l1_norm", StatisticId::kL1},
    {"l2_norm", StatisticId::kL2},
    {"abs_l1", StatisticId::kL1},
    {"abs_l2", StatisticId::kL2},
    {"abs_l1_norm", StatisticId::kL1},
    {"abs_l2_norm", StatisticId::kL2},
    {"abs_sum", StatisticId::kL1},
}};

std::uint64_t count_value(const Statistics& s, StatisticId id) {
  switch (id) {
    case StatisticId::kCount:
      return s.count;
    case StatisticId::kNanCount:
      return s.nan_count;
    case StatisticId::kPositiveInfCount:
      return s.positive_inf_count;
    case StatisticId::kNegativeInfCount:
      return s.negative_inf_count;
    case StatisticId::kZeroCount:
      return s.zero_count;
    case StatisticId::kSubnormalCount:
      return s.subnormal_count;
    case StatisticId::kOverflowCount:
      return s.overflow_count;
    case StatisticId::kUnderflowCount:
      return s.underflow_count;
    case StatisticId::kInfCount:
      return s.positive_inf_count + s.negative_inf_count;
    default:
      return s.finite_count();
  }
}

// Squares neither the mean nor the deviation, so that it is finite whenever its result is.
double rms(const Statistics& s) { return std::hypot(s.abs_mean, std::sqrt(s.abs_variance)); }

double finite_value(const Statistics& s, StatisticId id) {
  const auto n = static_cast<double>(s.finite_count());
  switch (id) {
    case StatisticId::kMin:
      return s.min;
    case StatisticId::kMax:
      return s.max;
    case StatisticId::kMean:
      return s.mean;
    case StatisticId::kVariance:
      return s.variance;
    case StatisticId::kAbsMin:
      return s.abs_min;
    case StatisticId::kAbsMean:
      return s.abs_mean;
    case StatisticId::kAbsVariance:
      return s.abs_variance;
    case StatisticId::kStd:
      return std::sqrt(s.variance);
    case StatisticId::kSum:
      return s.mean * n;
    case StatisticId::kL1:
      return s.abs_mean * n;
    case StatisticId::kL2:
      return rms(s) * std::sqrt(n);
    case StatisticId::kRms:
      return rms(s);
    case StatisticId::kAbsMax:
      return std::max(std::abs(s.min), std::abs(s.max));
    case StatisticId::kAbsStd:
      return std::sqrt(s.abs_variance);
    default:
      return kNaN;
  }
}

// No NaN among the elements, but at least one infinity.
double infinite_value(const Statistics& s, StatisticId id) {
  const bool has_finite = s.finite_count() != 0;
  switch (id) {
    case StatisticId::kMin:
      if (s.negative_inf_count != 0) return -kInf;
      return has_finite ? s.min : kInf;
    case StatisticId::kMax:
      if (s.positive_inf_count != 0) return kInf;
      return has_finite ? s.max : -kInf;
    case StatisticId::kMean:
    case StatisticId::kSum:
      if (s.negative_inf_count == 0) return kInf;
      return s.positive_inf_count == 0 ? -kInf : kNaN;
    case StatisticId::kAbsMin:
      return has_finite ? s.abs_min : kInf;
    case StatisticId::kAbsMean:
    case StatisticId::kAbsMax:
    case StatisticId::kL1:
    case StatisticId::kL2:
    case StatisticId::kRms:
      return kInf;
    default:
      return kNaN;  // a variance holds inf - inf
  }
}

}  // namespace

std::span<const StatisticDescriptor> statistic_table() { return kTable; }

const StatisticDescriptor& statistic_descriptor(StatisticId id) {
  const auto code = static_cast<std::size_t>(id);
  constexpr auto kFirstDerived = static_cast<std::size_t>(StatisticId::kStd);
  return kTable[code < kFirstDerived ? code : code - kFirstDerived + kStoredStatisticCount];
}

std::optional<StatisticId> statistic_from_name(std::string_view name) {
  for (const StatisticDescriptor& descriptor : kTable) {
    if (descriptor.name == name) return descriptor.id;
  }
  for (const auto& [alias, id] : kAliases) {
    if (alias == name) return id;
  }
  return std::nullopt;
}

double statistic_value(const Statistics& statistics, StatisticId id) {
  if (statistic_descriptor(id).is_count) return static_cast<double>(count_value(statistics, id));
  return statistics.finite_count() == 0 ? kNaN : finite_value(statistics, id);
}

double numpy_value(const Statistics& statistics, StatisticId id) {
  if (statistic_descriptor(id).is_count) return static_cast<double>(count_value(statistics, id));
  if (statistics.nan_count != 0) return kNaN;
  if (statistics.positive_inf_count + statistics.negative_inf_count != 0) {
    return infinite_value(statistics, id);
  }
  if (statistics.count != 0) return finite_value(statistics, id);
  const bool is_sum = id == StatisticId::kSum || id == StatisticId::kL1 || id == StatisticId::kL2;
  return is_sum ? 0.0 : kNaN;  // NumPy's sum of nothing is 0, its mean NaN
}

}  // namespace tensortap
