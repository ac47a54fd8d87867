#include "rules/values.h"

#include <algorithm>

#include "tensor/decode.h"
#include "trial/trial.h"

namespace tensortap {

std::optional<TensorValues> values_of(const WorkerStep& worker, const StatisticsRow& row) {
  const Layout& layout = worker.dictionary->layouts[row.layout];
  const std::vector<RawTensor>& raws = worker.record->raws;
  const auto raw = std::find_if(raws.begin(), raws.end(),
                                [&](const RawTensor& one) { return one.tensor == row.tensor; });
  if (raw != raws.end()) {
    return TensorValues{layout.shape, decode_elements(layout.dtype, raw->data.bytes())};
  }
  if (row.statistics.count == 0) return TensorValues{layout.shape, {}};
  if (const std::optional<double> value = single_value(row)) {
    return TensorValues{layout.shape, {*value}};
  }
  if (worker.trial == nullptr) return std::nullopt;
  const auto read = worker.trial->value(worker.dictionary->tensors[row.tensor].name,
                                        worker.record->info.step, Mode::kGlobal, worker.worker);
  if (!read) return std::nullopt;
  return TensorValues{read->layout.shape, decode_elements(read->layout.dtype, read->data.bytes())};
}

}  // namespace tensortap
