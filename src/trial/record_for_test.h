// For tests of trial/ and rules/: makes step records out of numbers, and runs of several workers in
// memory. Header only, so that no library carries it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "tensor/compute_statistics.h"
#include "trial/scalar_value.h"

namespace tensortap {

struct TestTensor {
  std::string name;
  std::vector<double> values;  // one element: zero-dimensional
  std::vector<std::string> collections = {};
  DType dtype = DType::kFloat32;
  bool is_raw = false;                   // the raw value as well
  std::string text = {};                 // a text instead of numbers
  std::vector<std::int64_t> shape = {};  // of more than one dimension; else what `values` says
};

// What a Recorder does, without its decisions: one worker's dictionary and records.
class RecordMaker {
 public:
  std::shared_ptr<const StepRecord> make(const StepInfo& info,
                                         const std::vector<TestTensor>& tensors) {
    auto record = std::make_shared<StepRecord>();
    record->info = info;
    for (const TestTensor& tensor : tensors) {
      const TensorId id = tensor_id(tensor, *record);
      if (!tensor.text.empty()) {
        record->texts.push_back({id, tensor.text});
        continue;
      }
      const auto size = static_cast<std::int64_t>(tensor.values.size());
      Layout layout{tensor.dtype, tensor.shape};
      if (layout.shape.empty() && size != 1) layout.shape = {size};
      const LayoutId layout_of_tensor = layout_id(layout, *record);
      const std::size_t element_bytes = dtype_size_bytes(tensor.dtype);
      const BufferPool::Buffer buffer = pool_.acquire(element_bytes * tensor.values.size());
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        trial::encode_scalar(tensor.values[i], tensor.dtype, buffer.data.get() + i * element_bytes);
      }
      StatisticsRow row;
      row.tensor = id;
      row.layout = layout_of_tensor;
      row.has_histogram = true;
      compute_statistics({buffer.data.get(), tensor.dtype, layout.shape, {}}, row.statistics,
                         &row.histogram);
      record->rows.push_back(row);
      if (tensor.is_raw) record->raws.push_back({id, layout_of_tensor, buffer});
    }
    return record;
  }
  const Dictionary& dictionary() const { return dictionary_; }

 private:
  TensorId tensor_id(const TestTensor& tensor, StepRecord& record) {
    for (std::size_t id = 0; id < dictionary_.tensors.size(); ++id) {
      if (dictionary_.tensors[id].name == tensor.name) return static_cast<TensorId>(id);
    }
    dictionary_.tensors.push_back({tensor.name, tensor.collections});
    record.new_tensors.push_back(dictionary_.tensors.back());
    return static_cast<TensorId>(dictionary_.tensors.size() - 1);
  }
  LayoutId layout_id(const Layout& layout, StepRecord& record) {
    for (std::size_t id = 0; id < dictionary_.layouts.size(); ++id) {
      if (dictionary_.layouts[id] == layout) return static_cast<LayoutId>(id);
    }
    dictionary_.layouts.push_back(layout);
    record.new_layouts.push_back(layout);
    return static_cast<LayoutId>(dictionary_.layouts.size() - 1);
  }

  Dictionary dictionary_;
  BufferPool pool_{0};
};

inline StepInfo global_step(std::int64_t step, std::uint32_t session = 0) {
  StepInfo info;
  info.step = info.mode_step = step;
  info.session = session;
  return info;
}

inline StepInfo mode_step(std::int64_t step, Mode mode, std::int64_t step_of_mode) {
  StepInfo info = global_step(step);
  info.mode = mode;
  info.mode_step = step_of_mode;
  return info;
}

}  // namespace tensortap
