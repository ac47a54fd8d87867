// The elements of a recorded tensor as numbers, for rules that cannot do with statistics. Used by
// rules/builtin. Thread-safe: works on its arguments alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rules/rule.h"

namespace tensortap {

struct TensorValues {
  std::vector<std::int64_t> shape;
  std::vector<double> elements;  // C order; complex elements as their magnitudes
};

// The raw value of a row, or of a one-element row what its statistics say. Nothing when no raw
// value was kept.
std::optional<TensorValues> values_of(const WorkerStep& worker, const StatisticsRow& row);

}  // namespace tensortap
