// Whether two values of a tensor are the same but for a tolerance, element by element as NumPy's
// allclose, or as far as their statistics can tell. Used by rules/builtin. Pure functions,
// thread-safe.
#pragma once

#include <span>

#include "tensor/statistics.h"

namespace tensortap {

// Elements are close when |old - now| <= absolute + relative * |now|. Infinities are close to
// themselves only, NaN to NaN only with equal_nan.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-8;
  bool equal_nan = false;
};

struct Difference {
  bool is_close = true;
  // Largest of the elements that are finite in both.
  double max_absolute = 0.0;
  double max_relative = 0.0;  // to |now|
};

// Of one size.
Difference compare_elements(std::span<const double> old, std::span<const double> now,
                            const Tolerance& tolerance);

// When the elements are close, so are these statistics; the reverse does not hold, but elements
// that change leave all of them alone only by an odd chance. The differences are those of the
// statistics.
Difference compare_statistics(const Statistics& old, const Statistics& now,
                              const Tolerance& tolerance);

}  // namespace tensortap
