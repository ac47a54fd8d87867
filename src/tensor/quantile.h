// Quantiles of a tensor out of its histogram, when the values themselves were not kept. Used by
// rules/. Pure functions, thread-safe.
#pragma once

#include <optional>

#include "tensor/histogram.h"
#include "tensor/statistics.h"

namespace tensortap {

// The value below which the fraction `q` (0 to 1) of the finite elements lies; interpolated within
// a bucket, so it may be off by the bucket's width: half an octave, at most half of the magnitude.
// 0 and 1 are the exact minimum and maximum. Nothing without finite elements.
std::optional<double> approximate_quantile(const Statistics& statistics, const Histogram& histogram,
                                           double q);

}  // namespace tensortap
