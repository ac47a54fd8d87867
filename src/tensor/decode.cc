#include "tensor/decode.h"

#include <algorithm>

#include "tensor/block_kernels.h"

namespace tensortap {

std::vector<double> decode_elements(DType dtype, std::span<const std::byte> bytes) {
  const std::size_t element_bytes = dtype_size_bytes(dtype);
  const std::size_t count = bytes.size() / element_bytes;
  const std::size_t block = tensor::kBlockBytes / sizeof(double);
  std::vector<double> values(count + tensor::kPaddingElements);
  std::vector<float> floats(tensor::decodes_to_double(dtype) ? 0
                                                             : block + tensor::kPaddingElements);
  for (std::size_t start = 0; start < count; start += block) {
    const std::size_t n = std::min(block, count - start);
    const std::byte* source = bytes.data() + start * element_bytes;
    if (floats.empty()) {
      tensor::decode_block(dtype, source, n, values.data() + start);
    } else {
      tensor::decode_block(dtype, source, n, floats.data());
      std::copy_n(floats.begin(), n, values.begin() + static_cast<std::ptrdiff_t>(start));
    }
  }
  values.resize(count);
  return values;
}

}  // namespace tensortap
