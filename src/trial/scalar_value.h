// Writes one number as one element of any real dtype: how a value comes back from the statistics of
// a one-element tensor. Used by Trial. Pure function, thread-safe. Complex dtypes are not its
// business (their statistics hold |z|).
#pragma once

#include <cstddef>

#include "tensor/dtype.h"

namespace tensortap::trial {

// Writes dtype_size_bytes(dtype) bytes at `out`. Numbers that the dtype cannot hold are rounded to
// nearest even, or go to the nearest end of an integer's range; NaN as an integer is 0.
void encode_scalar(double value, DType dtype, std::byte* out);

}  // namespace tensortap::trial
