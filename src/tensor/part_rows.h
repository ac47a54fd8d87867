// Statistics of a tensor whose elements lie on a device (a GPU), from the parts that the device
// computed: the framework cuts the tensor into parts, its own operations fill one row a part, and
// the rows are merged here exactly as the chunks of a tensor in host memory are. Used by capture/
// and the Python bindings. Pure functions, thread-safe. Trusts its caller about addresses and
// numbers of rows, not about the numbers in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/histogram.h"
#include "tensor/statistics.h"

namespace tensortap {

// The columns of a row, all double. Values mean nothing in a row without finite elements.
enum class PartColumn : std::uint8_t {
  kFinite,  // counts
  kNan,
  kPositiveInf,
  kNegativeInf,
  kZero,
  kSubnormal,
  kOverflow,
  kUnderflow,
  kMin,  // over the finite elements
  kMax,
  kAbsMin,
  kMean,
  kSquareDeviation,  // sum((x - mean)^2)
  kAbsMean,
  kAbsSquareDeviation,
};
inline constexpr std::size_t kPartColumns = 15;

// Consecutive rows, of one tensor.
struct PartRows {
  const double* statistics = nullptr;  // row_count x kPartColumns
  // row_count x Histogram::kBucketCount, in windows that end at the row's own largest magnitude; or
  // null.
  const std::int32_t* histograms = nullptr;
  std::size_t row_count = 0;
  std::uint64_t padding = 0;  // NaN elements among the rows' that are not the tensor's
};

// `histogram` may be null; parts without histograms leave it as it is.
void merge_parts(std::span<const PartRows> parts, Statistics& statistics,
                 Histogram* histogram) noexcept;

}  // namespace tensortap
