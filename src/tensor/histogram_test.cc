#include "tensor/histogram.h"

#include <numeric>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

std::uint64_t total(const Histogram& h) {
  return std::accumulate(h.counts.begin(), h.counts.end(), std::uint64_t{0});
}

TEST(Histogram, edges_are_half_octaves) {
  EXPECT_EQ(Histogram::edge(0), 1.0);
  EXPECT_EQ(Histogram::edge(1), 1.5);
  EXPECT_EQ(Histogram::edge(2), 2.0);
  EXPECT_EQ(Histogram::edge(-1), 0.75);
  EXPECT_EQ(Histogram::edge(-2), 0.5);
  EXPECT_EQ(Histogram::edge(-2148), 5e-324);
}

TEST(Histogram, bounds_meet_and_mirror) {
  Histogram h;
  h.top = 3;
  EXPECT_EQ(h.lower(63), 3.0);
  EXPECT_EQ(h.upper(63), 4.0);
  EXPECT_EQ(h.lower(0), -4.0);
  EXPECT_EQ(h.upper(0), -3.0);
  EXPECT_EQ(h.lower(32), 0.0);
  EXPECT_EQ(h.upper(31), 0.0);
  for (int i = 0; i < 63; ++i) EXPECT_EQ(h.upper(i), h.lower(i + 1)) << i;
  for (int i = 0; i < 64; ++i) EXPECT_EQ(h.lower(i), -h.upper(63 - i)) << i;
}

TEST(Histogram, merging_moves_the_lower_window) {
  Histogram low, high;
  low.top = -4;
  low.counts[63] = 5;  // the half-octave -4
  low.counts[0] = 2;
  low.counts[33] = 1;
  high.top = 6;
  high.counts[63] = 7;
  high.counts[53] = 3;  // the half-octave -4 too
  Histogram both = low;
  merge(both, high);
  EXPECT_EQ(both.top, 6);
  EXPECT_EQ(both.counts[63], 7u);
  EXPECT_EQ(both.counts[53], 8u);
  EXPECT_EQ(both.counts[10], 2u);
  EXPECT_EQ(both.counts[32], 1u);  // left the window
  Histogram other_order = high;
  merge(other_order, low);
  EXPECT_EQ(other_order.top, both.top);
  EXPECT_EQ(other_order.counts, both.counts);
}

TEST(Histogram, windows_without_overlap_keep_every_element) {
  Histogram tiny, huge;
  tiny.top = -2000;
  for (std::size_t i = 0; i < 64; ++i) tiny.counts[i] = i + 1;
  huge.top = 2000;
  huge.counts[5] = 1;
  const std::uint64_t want = total(tiny) + 1;
  merge(tiny, huge);
  EXPECT_EQ(total(tiny), want);
  EXPECT_EQ(tiny.counts[31], 32u * 33 / 2);
  EXPECT_EQ(tiny.counts[5], 1u);
}

TEST(Histogram, an_empty_one_has_no_window) {
  Histogram empty, full;
  full.top = -10;
  full.counts[63] = 1;
  Histogram a = empty;
  merge(a, full);
  EXPECT_EQ(a.top, -10);
  EXPECT_EQ(a.counts[63], 1u);
  merge(full, empty);
  EXPECT_EQ(full.top, -10);
  EXPECT_EQ(total(full), 1u);
}

}  // namespace
}  // namespace tensortap
