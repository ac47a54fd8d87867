// What a framework hook hands to Recorder, many in one call. Plain data; borrows all it points to.
#pragma once

#include <span>

#include "tensor/part_rows.h"
#include "tensor/tensor_view.h"
#include "trace/step_record.h"

namespace tensortap {

// One tensor of a batch.
struct RecordItem {
  TensorId tensor = 0;
  TensorView view;
};

// One tensor whose statistics a device computed in parts.
struct ComputedItem {
  TensorId tensor = 0;
  TensorView view;  // `data` is the raw value, in host memory; null when none is to be kept
  std::span<const PartRows> parts;
  bool has_histogram = false;
};

}  // namespace tensortap
