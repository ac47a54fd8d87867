// Walks a tensor view in C order and copies its elements to dense memory, a piece at a time. Used
// by copy_dense and by the statistics of tensors that are not dense. Allocates nothing. Not
// thread-safe; any number of readers may walk one tensor. Does not interpret elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/tensor_view.h"

namespace tensortap::tensor {

class StridedReader {
 public:
  explicit StridedReader(const TensorView& view);

  // Moves to an element by its index in C order.
  void seek(std::int64_t element);
  // Copies the next `count` elements to `destination`; the caller does not read past the end.
  void read(std::size_t count, void* destination);

 private:
  // A dimension that matters has at least two elements, and the element count fits 63 bits.
  static constexpr std::size_t kMaxRank = 64;
  struct Dimension {
    std::int64_t extent;
    std::int64_t stride_bytes;
  };

  void advance_row();

  const std::byte* base_;
  std::size_t element_bytes_;
  std::size_t rank_ = 0;  // of the outer dimensions
  std::array<Dimension, kMaxRank> outer_;
  std::array<std::int64_t, kMaxRank> position_{};
  Dimension inner_{1, 0};
  std::int64_t inner_position_ = 0;
  const std::byte* row_;  // where the current innermost row starts
};

}  // namespace tensortap::tensor
