#include "tensor/tensor_view.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/strided_reader.h"

namespace tensortap {

std::int64_t TensorView::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::size_t TensorView::size_bytes() const {
  return static_cast<std::size_t>(element_count()) * dtype_size_bytes(dtype);
}

bool TensorView::is_c_contiguous() const {
  if (strides_bytes.empty() || element_count() == 0) return true;
  auto expected = static_cast<std::int64_t>(dtype_size_bytes(dtype));
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides_bytes[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool TensorView::is_dense() const {
  if (is_c_contiguous()) return true;
  // Every step finds the dimension whose stride is the size of the block built so far; dimensions
  // of one element do not matter. Quadratic in the rank, which is small, and without memory.
  auto block_bytes = static_cast<std::int64_t>(dtype_size_bytes(dtype));
  const auto whole_bytes = static_cast<std::int64_t>(size_bytes());
  while (block_bytes < whole_bytes) {
    std::size_t i = 0;
    while (i < shape.size() && (shape[i] == 1 || strides_bytes[i] != block_bytes)) ++i;
    if (i == shape.size()) return false;
    block_bytes *= shape[i];
  }
  return true;
}

void copy_dense(const TensorView& view, void* destination) {
  const std::int64_t count = view.element_count();
  if (count == 0) return;
  if (view.is_c_contiguous()) {
    std::memcpy(destination, view.data, view.size_bytes());
    return;
  }
  tensor::StridedReader reader(view);
  reader.read(static_cast<std::size_t>(count), destination);
}

}  // namespace tensortap
