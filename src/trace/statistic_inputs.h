// Which stored columns a statistic is computed from, so that reading one statistic reads no more
// than it needs. Used by trace/ only. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/statistics.h"

namespace tensortap::trace {

// Codes of stored statistics, ascending.
std::vector<std::uint8_t> statistic_inputs(StatisticId statistic);

}  // namespace tensortap::trace
