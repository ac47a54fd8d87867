// The histograms of a step: one bit a row that says who has one, then per histogram its top, a mask
// of the buckets that hold anything, and their counts. Used by trace/ only. Pure functions; reading
// is noexcept.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "trace/step_record.h"

namespace tensortap::trace {

// Appends nothing when no row has a histogram.
void encode_histograms(std::span<const StatisticsRow> rows, ByteBuffer& out);
// Sets has_histogram and histogram of every row. False when the bytes are damaged.
bool decode_histograms(std::span<const std::byte> bytes, std::span<StatisticsRow> rows) noexcept;
// The same for one row of `row_count`.
bool decode_histogram(std::span<const std::byte> bytes, std::size_t row_count, std::size_t row,
                      StatisticsRow& out) noexcept;

}  // namespace tensortap::trace
