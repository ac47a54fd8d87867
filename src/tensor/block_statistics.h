// The statistics of part of a tensor while they are being accumulated: block by block, then chunk
// by chunk. Used by compute_statistics.cc. Not thread-safe: a thread fills its own part, and parts
// are merged in order. Knows neither tensors nor threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/histogram.h"
#include "tensor/statistics.h"

namespace tensortap::tensor {

// Mean and sum of squared deviations of n numbers, which the owner counts. The mean is a sum of two
// doubles (high + low), so that parts whose means agree in most digits still merge exactly.
struct Moments {
  double mean_high = 0.0;
  double mean_low = 0.0;
  double square_deviation = 0.0;
};

struct PartialStatistics {
  std::uint64_t finite = 0;
  std::uint64_t nan = 0;
  std::uint64_t positive_inf = 0;
  std::uint64_t negative_inf = 0;
  std::uint64_t zero = 0;
  std::uint64_t subnormal = 0;
  std::uint64_t overflow = 0;
  std::uint64_t underflow = 0;
  // These mean nothing while finite == 0.
  double min = 0.0;
  double max = 0.0;
  double abs_min = 0.0;
  Moments moments;
  Moments abs_moments;
};

// Adds a block of 1 to kBlockBytes / sizeof(T) elements. `smallest_normal` is that of the tensor's
// own dtype, 0 when it has no subnormal numbers. `histogram` may be null.
void add_block(const float* x, std::size_t n, double smallest_normal, PartialStatistics& partial,
               Histogram* histogram);
void add_block(const double* x, std::size_t n, double smallest_normal, PartialStatistics& partial,
               Histogram* histogram);

void merge(PartialStatistics& into, const PartialStatistics& other);
Statistics finish(const PartialStatistics& partial);

}  // namespace tensortap::tensor
