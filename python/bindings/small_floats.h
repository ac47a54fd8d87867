// Floats that NumPy has no dtype for, widened to float32 (which holds every value of theirs). Used
// by tensor_to_numpy only. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace tensortap::bindings {

bool is_small_float(DType dtype);  // bfloat16 and the four float8
std::vector<float> widen_small_floats(DType dtype, std::span<const std::byte> bytes);

}  // namespace tensortap::bindings
