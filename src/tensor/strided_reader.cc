#include "tensor/strided_reader.h"

#include <algorithm>
#include <cstring>

namespace tensortap::tensor {
namespace {

template <std::size_t kBytes>
std::byte* copy_elements(const std::byte* source, std::int64_t stride_bytes, std::size_t count,
                         std::byte* destination) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(destination + i * kBytes, source + static_cast<std::int64_t>(i) * stride_bytes,
                kBytes);
  }
  return destination + count * kBytes;
}

std::byte* copy_row(const std::byte* source, std::int64_t stride_bytes, std::size_t element_bytes,
                    std::size_t count, std::byte* destination) {
  if (stride_bytes == static_cast<std::int64_t>(element_bytes)) {
    std::memcpy(destination, source, count * element_bytes);
    return destination + count * element_bytes;
  }
  switch (element_bytes) {
    case 1:
      return copy_elements<1>(source, stride_bytes, count, destination);
    case 2:
      return copy_elements<2>(source, stride_bytes, count, destination);
    case 4:
      return copy_elements<4>(source, stride_bytes, count, destination);
    case 8:
      return copy_elements<8>(source, stride_bytes, count, destination);
    default:
      return copy_elements<16>(source, stride_bytes, count, destination);
  }
}

}  // namespace

StridedReader::StridedReader(const TensorView& view)
    : base_(static_cast<const std::byte*>(view.data)),
      element_bytes_(dtype_size_bytes(view.dtype)),
      row_(base_) {
  // Neighbouring dimensions that one stride can walk become one; dimensions of one element vanish.
  auto contiguous_stride = static_cast<std::int64_t>(element_bytes_);
  std::size_t count = 0;
  std::array<Dimension, kMaxRank> inner_first;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    const std::int64_t extent = view.shape[i];
    const std::int64_t stride =
        view.strides_bytes.empty() ? contiguous_stride : view.strides_bytes[i];
    contiguous_stride *= extent;
    if (extent == 1) continue;
    if (count > 0 &&
        inner_first[count - 1].stride_bytes * inner_first[count - 1].extent == stride) {
      inner_first[count - 1].extent *= extent;
    } else if (count < kMaxRank) {
      inner_first[count++] = {extent, stride};
    }
  }
  if (count == 0) return;
  inner_ = inner_first[0];
  rank_ = count - 1;
  for (std::size_t i = 0; i < rank_; ++i) outer_[i] = inner_first[rank_ - i];
}

void StridedReader::seek(std::int64_t element) {
  row_ = base_;
  inner_position_ = element % inner_.extent;
  std::int64_t rest = element / inner_.extent;
  for (std::size_t i = rank_; i-- > 0;) {
    position_[i] = rest % outer_[i].extent;
    rest /= outer_[i].extent;
    row_ += position_[i] * outer_[i].stride_bytes;
  }
}

void StridedReader::advance_row() {
  inner_position_ = 0;
  for (std::size_t i = rank_; i-- > 0;) {
    row_ += outer_[i].stride_bytes;
    if (++position_[i] < outer_[i].extent) return;
    row_ -= outer_[i].extent * outer_[i].stride_bytes;
    position_[i] = 0;
  }
}

void StridedReader::read(std::size_t count, void* destination) {
  auto* out = static_cast<std::byte*>(destination);
  while (count > 0) {
    const std::size_t in_row =
        std::min(count, static_cast<std::size_t>(inner_.extent - inner_position_));
    out = copy_row(row_ + inner_position_ * inner_.stride_bytes, inner_.stride_bytes,
                   element_bytes_, in_row, out);
    inner_position_ += static_cast<std::int64_t>(in_row);
    count -= in_row;
    if (inner_position_ == inner_.extent) advance_row();
  }
}

}  // namespace tensortap::tensor
