// A 64-bucket histogram on a logarithmic grid: 32 buckets for negative elements, 32 for positive
// ones, each half an octave wide (edges at 2^e and 1.5 * 2^e). The grid is the same for every
// tensor and step, so histograms of different steps and workers add up by shifting; only the window
// differs: `top` is the half-octave that holds the largest magnitude. Elements smaller than the
// window (16 octaves below the top) fall into the innermost bucket of their sign. Zeros and
// non-finite elements are not in the buckets; Statistics counts them. Plain data.
#pragma once

#include <array>
#include <cstdint>

namespace tensortap {

struct Histogram {
  static constexpr int kBucketsPerSign = 32;
  static constexpr int kBucketCount = 64;

  // Half-octave index of the outermost buckets: magnitudes in [edge(top), edge(top + 1)).
  std::int16_t top = 0;
  // [0] most negative ... [31] negative nearest zero, [32] positive nearest zero ... [63] most
  // positive.
  std::array<std::uint64_t, kBucketCount> counts{};

  // Lower magnitude edge of half-octave h: h even: 2^(h/2), odd: 1.5 * 2^((h-1)/2).
  static double edge(int half_octave);
  // Signed bounds of a bucket, lower <= x < upper for positive, lower < x <= upper for negative
  // buckets. The innermost buckets reach to 0.
  double lower(int bucket) const;
  double upper(int bucket) const;
};

// The half-octave that holds a positive, finite magnitude: edge(h) <= magnitude < edge(h + 1).
int half_octave(double magnitude);
// Moves the window outwards to end with half-octave `top`, which is not below the present one.
void raise_top(Histogram& histogram, int top);
// Adds `other` into `into`, re-windowing where the tops differ.
void merge(Histogram& into, const Histogram& other);

}  // namespace tensortap
