// The part of WorkerReader that answers "this tensor over many steps".
#include <algorithm>
#include <limits>
#include <utility>

#include "trace/statistic_fields.h"
#include "trace/statistic_inputs.h"
#include "trace/worker_reader.h"

namespace tensortap::trace {
namespace {

void set_missing(Statistics& statistics, std::uint8_t code) {
  if (code >= kCountFieldCount) {
    set_statistic(statistics, code, std::numeric_limits<double>::quiet_NaN());
  }
}

bool has_tensor(const EncodedStep& step, TensorId tensor) {
  if (step.find_row(tensor) != step.row_count) return true;
  for (std::size_t i = 0; i < step.raw_count; ++i) {
    if (step.raw(i).tensor == tensor) return true;
  }
  for (std::size_t i = 0; i < step.text_count; ++i) {
    if (step.text(i).tensor == tensor) return true;
  }
  return false;
}

}  // namespace

std::vector<std::uint32_t> WorkerReader::tensor_ordinals(TensorId tensor) const {
  std::vector<std::uint32_t> out;
  std::vector<std::uint32_t> local;
  for (const Segment& segment : segments_) {
    if (segment.step_count == 0) continue;
    if (!ordinals_in(segment, tensor, local)) local = ordinals_from_frames(segment, tensor);
    for (const std::uint32_t ordinal : local) out.push_back(segment.first_ordinal + ordinal);
  }
  return out;
}

bool WorkerReader::ordinals_in(const Segment& segment, TensorId tensor,
                               std::vector<std::uint32_t>& out) const {
  if (segment.index == nullptr) {
    out = segment.scan->tensor_ordinals(tensor);
    return true;
  }
  TensorIndex index;
  if (use_file(segment) && segment.index->read_tensor(reader_, tensor, index) &&
      segment.index->read_all_ordinals(reader_, index, out)) {
    return true;
  }
  report(segment, segment.index->index_offset(),
         "part of the index is damaged; steps are read instead");
  return false;
}

std::vector<std::uint32_t> WorkerReader::ordinals_from_frames(const Segment& segment,
                                                              TensorId tensor) const {
  std::vector<std::uint32_t> out;
  EncodedStep step;
  for (std::uint32_t local = 0; local < segment.step_count; ++local) {
    if (load({&segment, local}, step) && has_tensor(step, tensor)) out.push_back(local);
  }
  return out;
}

void WorkerReader::read_column(TensorId tensor, StatisticId statistic, std::uint32_t first,
                               std::uint32_t last, SourceColumn& out) const {
  for (const Segment& segment : segments_) {
    if (segment.step_count == 0) continue;
    const std::uint32_t end = segment.first_ordinal + segment.step_count;
    if (end <= first || segment.first_ordinal >= last) continue;
    const std::uint32_t from = std::max(first, segment.first_ordinal) - segment.first_ordinal;
    const std::uint32_t to = std::min(last, end) - segment.first_ordinal;
    if (segment.index != nullptr) {
      if (read_indexed(segment, tensor, statistic, from, to, out)) continue;
      report(segment, segment.index->index_offset(),
             "part of the index is damaged; steps are read instead");
    }
    read_from_frames(segment, tensor, statistic, from, to, out);
  }
}

// Leaves `out` alone when the index is damaged.
bool WorkerReader::read_indexed(const Segment& segment, TensorId tensor, StatisticId statistic,
                                std::uint32_t first, std::uint32_t last, SourceColumn& out) const {
  TensorIndex index;
  std::vector<std::uint32_t> ordinals;
  if (!use_file(segment) || !segment.index->read_tensor(reader_, tensor, index) ||
      !segment.index->read_row_ordinals(reader_, index, ordinals)) {
    return false;
  }
  const auto from = static_cast<std::size_t>(
      std::lower_bound(ordinals.begin(), ordinals.end(), first) - ordinals.begin());
  const auto to = static_cast<std::size_t>(
      std::lower_bound(ordinals.begin(), ordinals.end(), last) - ordinals.begin());
  std::vector<Statistics> rows(to - from);
  for (const std::uint8_t code : statistic_inputs(statistic)) {
    const TensorColumn* column = index.find(code);
    if (column == nullptr) {
      for (Statistics& row : rows) set_missing(row, code);
      continue;
    }
    DecodedColumn decoded;
    if (!segment.index->read_column(reader_, index, *column, decoded) ||
        is_unsigned(decoded.view.encoding) != (code < kCountFieldCount)) {
      return false;
    }
    decoded.view.visit(
        from, to, [&](std::size_t i, auto value) { set_statistic(rows[i - from], code, value); });
  }
  for (std::size_t i = from; i < to; ++i) {
    out.ordinals.push_back(segment.first_ordinal + ordinals[i]);
    out.values.push_back(statistic_value(rows[i - from], statistic));
  }
  return true;
}

void WorkerReader::read_from_frames(const Segment& segment, TensorId tensor, StatisticId statistic,
                                    std::uint32_t first, std::uint32_t last,
                                    SourceColumn& out) const {
  const std::vector<std::uint8_t> inputs = statistic_inputs(statistic);
  const auto read_one = [&](std::uint32_t local) {
    EncodedStep step;
    if (!load({&segment, local}, step)) return;
    const std::size_t row = step.find_row(tensor);
    if (row == step.row_count) return;
    Statistics statistics;
    for (const std::uint8_t code : inputs) {
      const ColumnView& column = step.statistics[code];
      if (!column.is_present()) {
        set_missing(statistics, code);
        continue;
      }
      column.visit(row, row + 1,
                   [&](std::size_t, auto value) { set_statistic(statistics, code, value); });
    }
    out.ordinals.push_back(segment.first_ordinal + local);
    out.values.push_back(statistic_value(statistics, statistic));
  };
  if (segment.index != nullptr) {  // its index is damaged: any step may have the tensor
    for (std::uint32_t local = first; local < last; ++local) read_one(local);
    return;
  }
  const std::vector<std::uint32_t>& ordinals = segment.scan->tensor_ordinals(tensor);
  const auto from = std::lower_bound(ordinals.begin(), ordinals.end(), first);
  const auto to = std::lower_bound(ordinals.begin(), ordinals.end(), last);
  std::for_each(from, to, read_one);
}

}  // namespace tensortap::trace
