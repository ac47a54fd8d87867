#include "tensor/quantile.h"

#include <algorithm>

namespace tensortap {
namespace {

constexpr int kFirstPositive = Histogram::kBucketsPerSign;

}  // namespace

std::optional<double> approximate_quantile(const Statistics& statistics, const Histogram& histogram,
                                           double q) {
  const std::uint64_t count = statistics.finite_count();
  if (count == 0) return std::nullopt;
  if (q <= 0.0) return statistics.min;
  if (q >= 1.0) return statistics.max;
  const double rank = q * static_cast<double>(count - 1);  // as numpy counts
  double before = 0.0;
  for (int bucket = 0; bucket < Histogram::kBucketCount; ++bucket) {
    if (bucket == kFirstPositive) {  // zeros lie between the signs
      before += static_cast<double>(statistics.zero_count);
      if (rank < before) return 0.0;
    }
    const auto in_bucket = static_cast<double>(histogram.counts[static_cast<std::size_t>(bucket)]);
    if (rank < before + in_bucket) {
      const double lower = std::max(histogram.lower(bucket), statistics.min);
      const double upper = std::min(histogram.upper(bucket), statistics.max);
      return lower + (upper - lower) * (rank - before + 0.5) / in_bucket;
    }
    before += in_bucket;
  }
  return statistics.max;
}

}  // namespace tensortap
