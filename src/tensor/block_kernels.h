// What the SIMD files in tensor/kernels/ offer: passes over one block of at most kBlockBytes that
// lies in the L1 cache, dispatched at run time to the best target. Used by block_statistics.cc,
// which decides which passes a block needs. Pure functions of their arguments, thread-safe, no
// allocation. Blocks are not empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace tensortap::tensor {

inline constexpr std::size_t kBlockBytes = 16 * 1024;
// Elements of the widest vector: buffers that kernels write hold this many more than the block.
inline constexpr std::size_t kPaddingElements = 64;

// Sums in double. With a NaN or infinity in the block (or a sum beyond double) abs_sum is not
// finite, and then min, max and abs_min mean nothing.
struct BlockSums {
  double sum;
  double abs_sum;
  double square_sum;
  double min;
  double max;
  double abs_min;
};
BlockSums sum_block(const float* x, std::size_t n);
BlockSums sum_block(const double* x, std::size_t n);

// Sums about pivots near the means, which do not cancel: of x - mean and |x| - abs_mean.
struct CenteredSums {
  double sum;
  double square_sum;
  double abs_sum;
  double abs_square_sum;
};
CenteredSums center_block(const float* x, std::size_t n, double mean, double abs_mean);
CenteredSums center_block(const double* x, std::size_t n, double mean, double abs_mean);

// Which counts can be other than 0, from the extremes of the block. Zeros count as underflow here,
// so that `zeros` implies `underflows`; subnormal numbers are looked for up to `smallest_normal`,
// that of the tensor's own dtype.
struct CountNeeds {
  bool zeros;
  bool underflows;
  bool subnormals;
  bool overflows;
  double smallest_normal;
};
// Of a block of finite elements.
struct BlockCounts {
  std::size_t zero;  // of either sign
  std::size_t negative_zero;
  std::size_t subnormal;
  std::size_t underflow;
  std::size_t overflow;
};
BlockCounts count_block(const float* x, std::size_t n, const CountNeeds& needs);
BlockCounts count_block(const double* x, std::size_t n, const CountNeeds& needs);

// Copies the finite elements to `finite` in order (room for n + kPaddingElements) and counts the
// others.
struct FiniteSplit {
  std::size_t finite;
  std::size_t nan;
  std::size_t positive_inf;
  std::size_t negative_inf;
};
FiniteSplit split_finite(const float* x, std::size_t n, float* finite);
FiniteSplit split_finite(const double* x, std::size_t n, double* finite);

// Adds a block of finite elements to 64 counters in the order of Histogram::counts, for the window
// that ends with the half-octave `top`. No magnitude is above the window, and the whole window
// above the smallest normal number. Zeros are counted in the innermost bucket of their sign.
struct BinExtent {
  double abs_min;  // the least and largest magnitudes of the block
  double abs_max;
  bool has_negative;  // a zero has a sign here
  bool has_positive;
};
void bin_block(const float* x, std::size_t n, int top, const BinExtent& extent,
               std::uint64_t* counts);
void bin_block(const double* x, std::size_t n, int top, const BinExtent& extent,
               std::uint64_t* counts);

// Conversions that lose nothing, but for 64-bit integers beyond 2^53, which round as in C. Complex
// numbers become magnitudes, which overflow only when the result does.
bool decodes_to_double(DType dtype);  // otherwise to float
void decode_block(DType dtype, const void* source, std::size_t n, float* destination);
void decode_block(DType dtype, const void* source, std::size_t n, double* destination);

// Names of the targets of this machine and build, best first.
std::vector<std::string> kernel_targets();
// Makes one of them the only one, "" = best again; false for an unknown name.
bool force_kernel_target(const std::string& name);

}  // namespace tensortap::tensor
