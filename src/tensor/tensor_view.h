// A borrowed, read-only view of somebody's tensor: what a framework hook hands down. Owns nothing;
// the memory must stay valid and unchanged during the call it is passed to. Any rank, any strides
// (zero and negative too), empty and zero-dimensional tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace tensortap {

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::span<const std::int64_t>
      shape;  // elements a dimension; empty = zero-dimensional, one element
  std::span<const std::int64_t> strides_bytes;  // same length as shape; empty = C-contiguous

  std::int64_t element_count() const;
  std::size_t size_bytes() const;  // element_count() * element size: the size of a dense copy
  // True when the elements fill one block of memory without gaps in *some* order (C, Fortran,
  // permuted dimensions), so that order-independent statistics may read it flat from data.
  bool is_dense() const;
  // True when a C-order walk reads memory in order, so that a raw copy is one memcpy.
  bool is_c_contiguous() const;
};

// Copies the elements in C order to `destination`, which has room for view.size_bytes().
void copy_dense(const TensorView& view, void* destination);

}  // namespace tensortap
