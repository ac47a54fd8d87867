// The engine's hot path: all statistics of a tensor in one pass over its memory, with the best SIMD
// target of the machine (Highway dispatch). Called by capture/. Thread-safe; allocates nothing for
// dense tensors. Reads memory only; changes no floating-point state.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tensor/histogram.h"
#include "tensor/statistics.h"
#include "tensor/tensor_view.h"

namespace tensortap {

class ThreadPool;

// `histogram` may be null: then it is not computed. With `pool`, a tensor above the splitting
// threshold (a few MiB) is shared out; results do not depend on the number of threads (fixed
// chunks, merged in order).
void compute_statistics(const TensorView& view, Statistics& statistics, Histogram* histogram,
                        ThreadPool* pool = nullptr) noexcept;

// One tensor of a batch; the results land in *statistics and *histogram (which may be null).
struct StatisticsTask {
  TensorView view;
  Statistics* statistics = nullptr;
  Histogram* histogram = nullptr;
};
// Many tensors in one call: small ones are packed together, large ones split, over `pool` and the
// caller.
void compute_statistics_batch(std::span<const StatisticsTask> tasks, ThreadPool* pool) noexcept;

// Names of the SIMD targets this machine can run ("AVX3", "AVX2", "SSE4", "SSE2", ...), best first.
std::vector<std::string> simd_targets();
// Forces one target by name for the whole process (tests and benchmarks), "" = best again.
// Throws Error(kInvalidArgument) with the valid names. Not to be called while others compute.
void force_simd_target(const std::string& name);

}  // namespace tensortap
