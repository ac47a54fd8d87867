#include "trace/step_record.h"

namespace tensortap {

void StepRecord::clear() {
  info = StepInfo{};
  new_tensors.clear();
  new_layouts.clear();
  rows.clear();
  raws.clear();
  left_out_raws.clear();
  texts.clear();
}

std::size_t StepRecord::size_bytes() const {
  std::size_t size = sizeof(StepRecord) + rows.size() * sizeof(StatisticsRow) +
                     raws.size() * sizeof(RawTensor) + left_out_raws.size() * sizeof(TensorId) +
                     texts.size() * sizeof(TextValue) + new_tensors.size() * sizeof(TensorInfo) +
                     new_layouts.size() * sizeof(Layout);
  for (const RawTensor& raw : raws) size += raw.data.size_bytes;
  for (const TextValue& text : texts) size += text.text.size();
  for (const TensorInfo& tensor : new_tensors) size += tensor.name.size();
  return size;
}

std::optional<double> single_value(const StatisticsRow& row) {
  const Statistics& statistics = row.statistics;
  if (statistics.count != 1) return std::nullopt;
  return numpy_value(statistics, StatisticId::kMean);
}

}  // namespace tensortap
