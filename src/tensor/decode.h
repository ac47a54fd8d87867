// The elements of a dense tensor of any dtype as doubles, for whoever has to look at single values.
// Used by rules/. Pure function, thread-safe. Statistics do not come this way: see
// compute_statistics.h.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace tensortap {

// Exact, but for 64-bit integers beyond 2^53, which round; complex numbers become magnitudes. A
// tail too short for an element is left out.
std::vector<double> decode_elements(DType dtype, std::span<const std::byte> bytes);

}  // namespace tensortap
