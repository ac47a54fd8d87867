#include "tensor/compute_statistics.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <limits>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "tensor/block_kernels.h"
#include "tensor/block_statistics.h"
#include "tensor/strided_reader.h"

namespace tensortap {
namespace {

using tensor::kBlockBytes;
using tensor::PartialStatistics;

// A tensor is cut into chunks of whole blocks, by its size alone: the results are the same whoever
// computes the chunks, for they are merged in order.
constexpr std::size_t kChunkBlocks = 32;
constexpr std::size_t kMaxChunks = 64;
constexpr std::size_t kSplitBytes =
    2 * 1024 * 1024;                            // below, waking threads costs more than it saves
constexpr std::size_t kPackBytes = 128 * 1024;  // of small tensors, at least, for one thread's turn
constexpr std::size_t kMaxPacks = 256;

// The default environment while kernels run: no trap and no flush-to-zero, whatever the training
// has set; the training's own settings and flags come back as they were.
class DefaultFloatingPoint {
 public:
#if defined(__SSE__)
  DefaultFloatingPoint() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultControl); }
  ~DefaultFloatingPoint() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefaultControl = 0x1F80;
  unsigned saved_;
#else
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
 public:
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;
};

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return std::numeric_limits<double>::min();
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kComplex64:
      return static_cast<double>(std::numeric_limits<float>::min());
    case DType::kFloat16:
    case DType::kFloat8E5M2:
      return 0x1p-14;
    case DType::kFloat8E4M3FN:
      return 0x1p-6;
    case DType::kFloat8E4M3FNUZ:
      return 0x1p-7;
    case DType::kFloat8E5M2FNUZ:
      return 0x1p-15;
    default:
      return 0.0;
  }
}

// One tensor, read either flat from memory or element by element in C order.
struct Source {
  explicit Source(const TensorView& tensor)
      : view(tensor),
        count(static_cast<std::size_t>(tensor.element_count())),
        element_bytes(dtype_size_bytes(tensor.dtype)),
        is_flat(tensor.is_dense()),
        is_double(tensor::decodes_to_double(tensor.dtype)),
        normal(smallest_normal(tensor.dtype)) {}

  std::size_t block_elements() const {
    return kBlockBytes / (is_double ? sizeof(double) : sizeof(float));
  }
  std::size_t chunk_elements() const {
    const std::size_t blocks = (count + block_elements() - 1) / block_elements();
    const std::size_t in_chunk = std::max(kChunkBlocks, (blocks + kMaxChunks - 1) / kMaxChunks);
    return in_chunk * block_elements();
  }
  std::size_t chunk_count() const { return (count + chunk_elements() - 1) / chunk_elements(); }
  std::size_t size_bytes() const { return count * element_bytes; }

  const TensorView& view;
  std::size_t count;
  std::size_t element_bytes;
  bool is_flat;
  bool is_double;
  double normal;
};

template <class T>
bool is_native(DType dtype) {
  return dtype == (sizeof(T) == sizeof(float) ? DType::kFloat32 : DType::kFloat64);
}

template <class T>
void add_flat(const Source& source, std::size_t begin, std::size_t end, PartialStatistics& partial,
              Histogram* histogram) {
  const auto* bytes = static_cast<const std::byte*>(source.view.data);
  const std::size_t block = source.block_elements();
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % alignof(T) == 0;
  if (is_native<T>(source.view.dtype) && is_aligned) {
    const auto* x = reinterpret_cast<const T*>(bytes);
    for (std::size_t i = begin; i < end; i += block) {
      tensor::add_block(x + i, std::min(block, end - i), source.normal, partial, histogram);
    }
    return;
  }
  alignas(64) T decoded[kBlockBytes / sizeof(T)];
  for (std::size_t i = begin; i < end; i += block) {
    const std::size_t n = std::min(block, end - i);
    tensor::decode_block(source.view.dtype, bytes + i * source.element_bytes, n, decoded);
    tensor::add_block(decoded, n, source.normal, partial, histogram);
  }
}

template <class T>
void add_strided(const Source& source, std::size_t begin, std::size_t end,
                 PartialStatistics& partial, Histogram* histogram) {
  constexpr std::size_t kMaxElementBytes = 16;
  alignas(64) std::byte gathered[kBlockBytes / sizeof(double) * kMaxElementBytes];
  alignas(64) T decoded[kBlockBytes / sizeof(T)];
  const std::size_t block = source.block_elements();
  tensor::StridedReader reader(source.view);
  reader.seek(static_cast<std::int64_t>(begin));
  for (std::size_t i = begin; i < end; i += block) {
    const std::size_t n = std::min(block, end - i);
    reader.read(n, gathered);
    tensor::decode_block(source.view.dtype, gathered, n, decoded);
    tensor::add_block(decoded, n, source.normal, partial, histogram);
  }
}

// A chunk by its index, into results that the caller has cleared.
void add_chunk(const Source& source, std::size_t chunk, PartialStatistics& partial,
               Histogram* histogram) {
  const std::size_t begin = chunk * source.chunk_elements();
  const std::size_t end = std::min(begin + source.chunk_elements(), source.count);
  if (source.is_flat) {
    source.is_double ? add_flat<double>(source, begin, end, partial, histogram)
                     : add_flat<float>(source, begin, end, partial, histogram);
  } else {
    source.is_double ? add_strided<double>(source, begin, end, partial, histogram)
                     : add_strided<float>(source, begin, end, partial, histogram);
  }
}

void compute_alone(const Source& source, Statistics& statistics, Histogram* histogram) {
  const DefaultFloatingPoint environment;
  PartialStatistics whole;
  if (histogram != nullptr) *histogram = Histogram{};
  const std::size_t chunks = source.chunk_count();
  if (chunks == 1) {
    add_chunk(source, 0, whole, histogram);
  } else {
    for (std::size_t i = 0; i < chunks; ++i) {
      PartialStatistics partial;
      Histogram part;
      add_chunk(source, i, partial, histogram != nullptr ? &part : nullptr);
      tensor::merge(whole, partial);
      if (histogram != nullptr) merge(*histogram, part);
    }
  }
  statistics = tensor::finish(whole);
}

struct SplitJob {
  const Source& source;
  bool wants_histogram;
  std::array<PartialStatistics, kMaxChunks> partials;
  std::array<Histogram, kMaxChunks> histograms;

  void run(std::size_t chunk) {
    const DefaultFloatingPoint environment;
    add_chunk(source, chunk, partials[chunk], wants_histogram ? &histograms[chunk] : nullptr);
  }
};

void compute_split(const Source& source, Statistics& statistics, Histogram* histogram,
                   ThreadPool& pool) {
  SplitJob job{source, histogram != nullptr, {}, {}};
  const std::size_t chunks = source.chunk_count();
  pool.parallel_for(chunks, [&job](std::size_t i) { job.run(i); });
  const DefaultFloatingPoint environment;
  PartialStatistics whole;
  if (histogram != nullptr) *histogram = Histogram{};
  for (std::size_t i = 0; i < chunks; ++i) {
    tensor::merge(whole, job.partials[i]);
    if (histogram != nullptr) merge(*histogram, job.histograms[i]);
  }
  statistics = tensor::finish(whole);
}

bool has_threads(const ThreadPool* pool) { return pool != nullptr && pool->thread_count() > 0; }

bool is_split(const TensorView& view) { return view.size_bytes() >= kSplitBytes; }

void compute_task(const StatisticsTask& task) {
  compute_alone(Source(task.view), *task.statistics, task.histogram);
}

// Consecutive tasks for one thread's turn; of those only the small ones are meant.
struct Packs {
  std::span<const StatisticsTask> tasks;
  std::array<std::size_t, kMaxPacks + 1> bounds;
  std::size_t count = 0;

  void run(std::size_t pack) const {
    for (std::size_t i = bounds[pack]; i < bounds[pack + 1]; ++i) {
      if (!is_split(tasks[i].view)) compute_task(tasks[i]);
    }
  }
};

void fill_packs(Packs& packs) {
  std::size_t small_bytes = 0;
  for (const StatisticsTask& task : packs.tasks) {
    if (!is_split(task.view)) small_bytes += task.view.size_bytes();
  }
  // Every pack but the last is full, so that there are at most kMaxPacks.
  const std::size_t pack_bytes = std::max(kPackBytes, small_bytes / (kMaxPacks - 1) + 1);
  std::size_t filled = 0;
  packs.bounds[0] = 0;
  for (std::size_t i = 0; i < packs.tasks.size(); ++i) {
    if (!is_split(packs.tasks[i].view)) filled += packs.tasks[i].view.size_bytes();
    if (filled >= pack_bytes || i + 1 == packs.tasks.size()) {
      packs.bounds[++packs.count] = i + 1;
      filled = 0;
    }
  }
}

}  // namespace

void compute_statistics(const TensorView& view, Statistics& statistics, Histogram* histogram,
                        ThreadPool* pool) noexcept {
  const Source source(view);
  if (has_threads(pool) && is_split(view)) {
    compute_split(source, statistics, histogram, *pool);
  } else {
    compute_alone(source, statistics, histogram);
  }
}

void compute_statistics_batch(std::span<const StatisticsTask> tasks, ThreadPool* pool) noexcept {
  if (!has_threads(pool)) {
    for (const StatisticsTask& task : tasks) compute_task(task);
    return;
  }
  for (const StatisticsTask& task : tasks) {
    if (is_split(task.view)) {
      compute_split(Source(task.view), *task.statistics, task.histogram, *pool);
    }
  }
  Packs packs{tasks, {}, 0};
  fill_packs(packs);
  if (packs.count == 1) {
    packs.run(0);
  } else {
    pool->parallel_for(packs.count, [&packs](std::size_t i) { packs.run(i); });
  }
}

std::vector<std::string> simd_targets() { return tensor::kernel_targets(); }

void force_simd_target(const std::string& name) {
  if (tensor::force_kernel_target(name)) return;
  throw Error(ErrorCode::kInvalidArgument, "no SIMD target '" + name +
                                               "' on this machine; there are " +
                                               join(tensor::kernel_targets(), ", "));
}

}  // namespace tensortap
