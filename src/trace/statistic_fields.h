// The members of Statistics by the code of their column, so that the codecs loop instead of listing
// fifteen names in five places. Used by trace/ only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/statistics.h"

namespace tensortap::trace {

inline constexpr std::size_t kCountFieldCount = 8;

inline constexpr std::array<std::uint64_t Statistics::*, kCountFieldCount> kCountFields = {
    &Statistics::count,
    &Statistics::nan_count,
    &Statistics::positive_inf_count,
    &Statistics::negative_inf_count,
    &Statistics::zero_count,
    &Statistics::subnormal_count,
    &Statistics::overflow_count,
    &Statistics::underflow_count,
};

// Codes kCountFieldCount and up.
inline constexpr std::array<double Statistics::*, kStoredStatisticCount - kCountFieldCount>
    kNumberFields = {
        &Statistics::min,          &Statistics::max,     &Statistics::mean,
        &Statistics::variance,     &Statistics::abs_min, &Statistics::abs_mean,
        &Statistics::abs_variance,
};

static_assert(static_cast<std::size_t>(StatisticId::kMin) == kCountFieldCount);
static_assert(static_cast<std::size_t>(StatisticId::kAbsVariance) + 1 == kStoredStatisticCount);

}  // namespace tensortap::trace
