#include "tensor/part_rows.h"

#include <algorithm>
#include <cmath>

#include "tensor/block_statistics.h"

namespace tensortap {
namespace {

using tensor::PartialStatistics;

constexpr double kMaxCount = 0x1p53;

double value(const double* row, PartColumn column) { return row[static_cast<std::size_t>(column)]; }

std::uint64_t count(const double* row, PartColumn column) {
  const double number = value(row, column);
  return number > 0.0 ? static_cast<std::uint64_t>(std::min(number, kMaxCount)) : 0;
}

PartialStatistics partial_of(const double* row) {
  PartialStatistics part;
  part.finite = count(row, PartColumn::kFinite);
  part.nan = count(row, PartColumn::kNan);
  part.positive_inf = count(row, PartColumn::kPositiveInf);
  part.negative_inf = count(row, PartColumn::kNegativeInf);
  part.zero = count(row, PartColumn::kZero);
  part.subnormal = count(row, PartColumn::kSubnormal);
  part.overflow = count(row, PartColumn::kOverflow);
  part.underflow = count(row, PartColumn::kUnderflow);
  part.min = value(row, PartColumn::kMin);
  part.max = value(row, PartColumn::kMax);
  part.abs_min = value(row, PartColumn::kAbsMin);
  part.moments = {value(row, PartColumn::kMean), 0.0, value(row, PartColumn::kSquareDeviation)};
  part.abs_moments = {value(row, PartColumn::kAbsMean), 0.0,
                      value(row, PartColumn::kAbsSquareDeviation)};
  return part;
}

void merge_histogram(const std::int32_t* counts, const PartialStatistics& part,
                     Histogram& histogram) {
  const double largest = std::max(-part.min, part.max);
  if (part.finite == 0 || !std::isfinite(largest) || !(largest > 0.0)) return;
  Histogram row;
  row.top = static_cast<std::int16_t>(half_octave(largest));
  for (int i = 0; i < Histogram::kBucketCount; ++i) {
    row.counts[i] = static_cast<std::uint64_t>(std::max(counts[i], 0));
  }
  merge(histogram, row);
}

}  // namespace

void merge_parts(std::span<const PartRows> parts, Statistics& statistics,
                 Histogram* histogram) noexcept {
  PartialStatistics whole;
  std::uint64_t padding = 0;
  if (histogram != nullptr) *histogram = Histogram{};
  for (const PartRows& rows : parts) {
    padding += rows.padding;
    for (std::size_t i = 0; i < rows.row_count; ++i) {
      const PartialStatistics part = partial_of(rows.statistics + i * kPartColumns);
      tensor::merge(whole, part);
      if (histogram == nullptr || rows.histograms == nullptr) continue;
      merge_histogram(rows.histograms + i * Histogram::kBucketCount, part, *histogram);
    }
  }
  whole.nan -= std::min(whole.nan, padding);
  statistics = tensor::finish(whole);
}

}  // namespace tensortap
