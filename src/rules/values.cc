#include "rules/values.h"

#include <algorithm>

#include "tensor/decode.h"
#include "trial/trial.h"

namespace tensortap {

std::optional<TensorValues> decode_values(const Layout& layout, std::span<const std::byte> bytes) {
  std::size_t count = 1;
  for (const std::int64_t extent : layout.shape) count *= static_cast<std::size_t>(extent);
  TensorValues values{layout.shape, decode_elements(layout.dtype, bytes)};
  if (values.elements.size() != count) return std::nullopt;
  return values;
}

std::optional<TensorValues> values_of(const WorkerStep& worker, const StatisticsRow& row) {
  const Layout& layout = worker.dictionary->layouts[row.layout];
  const std::vector<RawTensor>& raws = worker.record->raws;
  const auto raw = std::find_if(raws.begin(), raws.end(),
                                [&](const RawTensor& one) { return one.tensor == row.tensor; });
  if (raw != raws.end()) return decode_values(layout, raw->data.bytes());
  if (row.statistics.count == 0) return TensorValues{layout.shape, {}};
  if (const std::optional<double> value = single_value(row)) {
    return TensorValues{layout.shape, {*value}};
  }
  // Asked first: looking for a raw value that is not there is as slow as reading one.
  const std::vector<TensorId>& left_out = worker.record->left_out_raws;
  if (worker.trial == nullptr ||
      std::find(left_out.begin(), left_out.end(), row.tensor) == left_out.end()) {
    return std::nullopt;
  }
  const auto read = worker.trial->value(worker.dictionary->tensors[row.tensor].name,
                                        worker.record->info.step, Mode::kGlobal, worker.worker);
  if (!read) return std::nullopt;
  return decode_values(read->layout, read->data.bytes());
}

}  // namespace tensortap
