// One finished step of one worker, in memory: what capture/ fills, the writer puts on disk, the
// reader gives back, and rules look at. A rule sees the same record whether the step just ended or
// was read from a run, which is why the findings agree. Plain data; immutable once it is shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "tensor/dtype.h"
#include "tensor/histogram.h"
#include "tensor/statistics.h"
#include "trace/mode.h"

namespace tensortap {

using TensorId = std::uint32_t;  // dense from 0, within one worker
using LayoutId = std::uint32_t;  // dense from 0, within one worker

struct TensorInfo {
  std::string name;
  // Those that the tensor was found to belong to when it was first seen.
  std::vector<std::string> collections;
};

// What a tensor looked like at one step. Not a property of the name: batches end short, autocast
// changes dtypes.
struct Layout {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  bool operator==(const Layout&) const = default;
};

// All tensors and layouts of one worker, by id. Append-only.
struct Dictionary {
  std::vector<TensorInfo> tensors;
  std::vector<Layout> layouts;
};

struct StatisticsRow {
  TensorId tensor = 0;
  LayoutId layout = 0;
  bool has_histogram = false;
  Statistics statistics;
  Histogram histogram;  // meaningful only with has_histogram
};

struct RawTensor {
  TensorId tensor = 0;
  LayoutId layout = 0;
  BufferPool::Buffer data;  // C order
};

struct TextValue {
  TensorId tensor = 0;
  std::string text;
};

struct StepInfo {
  std::int64_t step = 0;  // global step
  Mode mode = Mode::kGlobal;
  std::int64_t mode_step = 0;
  std::int64_t wall_time_ns = 0;  // when the step began, since the Unix epoch
  std::int64_t duration_ns = 0;   // until end_step
  std::uint32_t session = 0;      // 0 for the first start of a run, +1 for each resume
};

struct StepRecord {
  StepInfo info;
  // Definitions that this step is the first to use, so that a record can travel alone; ids continue
  // the worker's dictionary.
  std::vector<TensorInfo> new_tensors;
  std::vector<Layout> new_layouts;
  std::vector<StatisticsRow> rows;  // at most one a tensor
  std::vector<RawTensor> raws;      // at most one a tensor
  // Whose raw values the run holds, when this was read from it: they are left out of `raws`.
  std::vector<TensorId> left_out_raws;
  std::vector<TextValue> texts;

  void clear();                    // keeps the memory
  std::size_t size_bytes() const;  // what it holds, for queues
};

// A one-element real tensor needs no raw copy: its value is in its statistics. Nothing for other
// rows.
std::optional<double> single_value(const StatisticsRow& row);

}  // namespace tensortap
