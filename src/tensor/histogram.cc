#include "tensor/histogram.h"

#include <algorithm>
#include <cmath>

namespace tensortap {
namespace {

constexpr int kPerSign = Histogram::kBucketsPerSign;

bool is_empty(const Histogram& histogram) {
  return std::all_of(histogram.counts.begin(), histogram.counts.end(),
                     [](std::uint64_t count) { return count == 0; });
}

// Moves every bucket `shift` half-octaves inwards; what leaves the window gathers in the innermost
// ones.
void shift_inwards(Histogram& histogram, int shift) {
  const auto old = histogram.counts;
  histogram.counts.fill(0);
  for (int depth = 0; depth < kPerSign; ++depth) {  // 0 = outermost
    const int target = std::min(depth + shift, kPerSign - 1);
    histogram.counts[target] += old[depth];
    histogram.counts[Histogram::kBucketCount - 1 - target] +=
        old[Histogram::kBucketCount - 1 - depth];
  }
}

}  // namespace

int half_octave(double magnitude) {
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  return 2 * (exponent - 1) + (fraction >= 0.75 ? 1 : 0);
}

double Histogram::edge(int half_octave) {
  const int exponent = half_octave >> 1;  // rounds down for negative half-octaves too
  return std::ldexp((half_octave & 1) != 0 ? 1.5 : 1.0, exponent);
}

double Histogram::lower(int bucket) const {
  if (bucket < kBucketsPerSign) return -edge(top + 1 - bucket);
  if (bucket == kBucketsPerSign) return 0.0;
  return edge(top - (kBucketCount - 1 - bucket));
}

double Histogram::upper(int bucket) const {
  if (bucket >= kBucketsPerSign) return edge(top + 1 - (kBucketCount - 1 - bucket));
  if (bucket == kBucketsPerSign - 1) return 0.0;
  return -edge(top - bucket);
}

void raise_top(Histogram& histogram, int top) {
  shift_inwards(histogram, top - histogram.top);
  histogram.top = static_cast<std::int16_t>(top);
}

void merge(Histogram& into, const Histogram& other) {
  if (into.top != other.top) {
    if (is_empty(other)) return;
    if (is_empty(into)) {
      into = other;
      return;
    }
    if (into.top < other.top) raise_top(into, other.top);
  }
  if (into.top == other.top) {
    for (int i = 0; i < Histogram::kBucketCount; ++i) into.counts[i] += other.counts[i];
    return;
  }
  Histogram shifted = other;
  shift_inwards(shifted, into.top - other.top);
  for (int i = 0; i < Histogram::kBucketCount; ++i) into.counts[i] += shifted.counts[i];
}

}  // namespace tensortap
