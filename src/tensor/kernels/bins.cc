// The histogram of a block: counts of sign and half-octave, which are the topmost bits of a number.
//
// Counting in memory costs more than a cycle an element. Here a byte a number names its bucket; a
// table lookup turns it into one bit of 8 (of a "plane" of 8 buckets), and carry-save adders count
// the bits of equal place over many vectors at once. Only the sums of 128 vectors leave the
// registers.

#include <cmath>
#include <cstring>
#include <type_traits>

#include "tensor/block_kernels.h"
#include "tensor/histogram.h"

// The order matters.
// clang-format off
#include "tensor/kernel_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/kernels/bins.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tensortap::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kPerSign = Histogram::kBucketsPerSign;

// The window's innermost half-octave, as the topmost bits of a T without its sign count it.
template <class T>
constexpr int base_index(int top) {
  constexpr int kIndexOfOne = 2 * (sizeof(T) == 4 ? 127 : 1023);
  return top + kIndexOfOne - (Histogram::kBucketsPerSign - 1);
}

// How far a number lies above the innermost half-octave, whose index is `base`; 0 below.
template <class T>
HWY_INLINE std::size_t depth_of(T number, int base) {
  using U = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int kShift = sizeof(T) == 4 ? 22 : 51;
  U bits;
  std::memcpy(&bits, &number, sizeof bits);
  const int depth = static_cast<int>(bits << 1 >> (kShift + 1)) - base;
  return depth < 0 ? 0 : static_cast<std::size_t>(depth);
}

template <class T>
HWY_INLINE void bin_one_by_one(const T* x, std::size_t n, int base, std::uint64_t* counts) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t depth = depth_of(x[i], base);
    counts[std::signbit(x[i]) ? kPerSign - 1 - depth : kPerSign + depth] += 1;
  }
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE

template <class T>
HWY_INLINE void bin_all(const T* x, std::size_t n, int base, const BinExtent& /*extent*/,
                        std::uint64_t* counts) {
  bin_one_by_one(x, n, base, counts);
}

#else

using ByteTag = hn::ScalableTag<std::uint8_t>;
using ByteVector = hn::Vec<ByteTag>;
using WordTag = hn::ScalableTag<std::uint16_t>;
using WordVector = hn::Vec<WordTag>;

constexpr std::size_t kStep = 8;          // vectors that one round of adders takes
constexpr std::size_t kRunVectors = 128;  // counted in 8 bits before the sums are taken out
constexpr std::uint8_t kNoBucket = 0x40;  // no lookup finds it
constexpr std::size_t kFew = 512;         // below, the adders do not pay

// The upper 16 bits of as many numbers as a vector of them holds, in any order.
HWY_INLINE WordVector upper_words(const float* x) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<std::uint32_t> d;
  const auto a = hn::BitCast(d, hn::LoadU(df, x));
  const auto b = hn::BitCast(d, hn::LoadU(df, x + hn::Lanes(df)));
  const WordTag dw;
  return hn::OddEven(hn::BitCast(dw, b), hn::BitCast(dw, hn::ShiftRight<16>(a)));
}
HWY_INLINE hn::Vec<hn::ScalableTag<std::uint32_t>> upper_halves(const double* x) {
  const hn::ScalableTag<double> df;
  const hn::ScalableTag<std::uint64_t> d;
  const auto a = hn::BitCast(d, hn::LoadU(df, x));
  const auto b = hn::BitCast(d, hn::LoadU(df, x + hn::Lanes(df)));
  const hn::ScalableTag<std::uint32_t> dh;
  return hn::OddEven(hn::BitCast(dh, b), hn::BitCast(dh, hn::ShiftRight<32>(a)));
}
HWY_INLINE WordVector upper_words(const double* x) {
  const auto a = upper_halves(x);
  const auto b = upper_halves(x + hn::Lanes(hn::ScalableTag<std::uint32_t>()));
  const WordTag dw;
  return hn::OddEven(hn::BitCast(dw, b), hn::BitCast(dw, hn::ShiftRight<16>(a)));
}

// How far above the innermost half-octave, 0 to 31.
template <class T>
HWY_INLINE WordVector depths(WordVector words, WordVector base) {
  constexpr int kShift = sizeof(T) == 4 ? 6 : 3;  // keeps the exponent and one bit of the mantissa
  const WordTag d;
  return hn::SaturatedSub(hn::ShiftRight<kShift>(hn::And(words, hn::Set(d, 0x7fff))), base);
}

// A byte a number: its depth, and the sign in the topmost bit.
template <class T>
HWY_INLINE ByteVector codes_of(const T* x, WordVector base) {
  const WordTag dw;
  const ByteTag d;
  const auto low = upper_words(x);
  const auto high = upper_words(x + hn::Lanes(dw));
  const auto depth = hn::Or(depths<T>(low, base), hn::ShiftLeft<8>(depths<T>(high, base)));
  const auto top_bytes = hn::OddEven(hn::BitCast(d, high), hn::BitCast(d, hn::ShiftRight<8>(low)));
  return hn::OrAnd(hn::BitCast(d, depth), top_bytes, hn::Set(d, std::uint8_t{0x80}));
}

// Writes the codes of all numbers; the last vector is filled up with zeros, whose code is 0. Gives
// the count of vectors.
template <class T>
HWY_INLINE std::size_t write_codes(const T* HWY_RESTRICT x, std::size_t n, int base,
                                   std::uint8_t* HWY_RESTRICT codes) {
  const ByteTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto word_base = hn::Set(WordTag(), static_cast<std::uint16_t>(base));
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::Store(codes_of(x + i, word_base), d, codes + i);
  if (i < n) {
    HWY_ALIGN T tail[HWY_MAX_BYTES] = {};
    std::memcpy(tail, x + i, (n - i) * sizeof(T));
    hn::Store(codes_of(tail, word_base), d, codes + i);
    i += lanes;
  }
  return i / lanes;
}

// Straight into memory, in four tables by turns, since an increment waits for the one before in the
// same counter.
template <class T>
HWY_INLINE void bin_few(const T* HWY_RESTRICT x, std::size_t n, int base,
                        std::uint64_t* HWY_RESTRICT counts) {
  HWY_ALIGN std::uint8_t codes[kFew + HWY_MAX_BYTES];
  const ByteTag d;
  const std::size_t padded = write_codes(x, n, base, codes) * hn::Lanes(d);
  std::uint16_t tables[4][Histogram::kBucketCount] = {};
  for (std::size_t i = 0; i < padded; i += 4) {
    std::uint32_t four;
    std::memcpy(&four, codes + i, sizeof four);
    four = (four & 0x1f1f1f1f) | (four & 0x80808080) >> 2;  // the sign to bit 5
    tables[0][four & 0xff] += 1;
    tables[1][four >> 8 & 0xff] += 1;
    tables[2][four >> 16 & 0xff] += 1;
    tables[3][four >> 24] += 1;
  }
  for (std::size_t i = 0; i < kPerSign; ++i) {
    const std::size_t k = kPerSign + i;
    const int positive = tables[0][i] + tables[1][i] + tables[2][i] + tables[3][i];
    const int negative = tables[0][k] + tables[1][k] + tables[2][k] + tables[3][k];
    counts[kPerSign + i] += static_cast<std::uint64_t>(positive);
    counts[kPerSign - 1 - i] += static_cast<std::uint64_t>(negative);
  }
  counts[kPerSign] -= padded - n;
}

// sum and carry of three bits, in every bit place.
HWY_INLINE void add_bits(ByteVector& sum, ByteVector a, ByteVector b, ByteVector& carry) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const ByteVector majority{_mm512_ternarylogic_epi64(a.raw, b.raw, sum.raw, 0xE8)};
  sum = hn::Xor3(a, b, sum);
  carry = majority;
#else
  const auto half = hn::Xor(a, b);
  const auto majority = hn::OrAnd(hn::And(a, b), half, sum);
  sum = hn::Xor(half, sum);
  carry = majority;
#endif
}

// The lowest three bits of counters, in every bit place of a vector, and what they carry over.
struct LowBits {
  ByteVector one, two, four;
};

// What turns 16 neighbouring codes into one bit of a low plane or one of a high plane.
struct GroupLookup {
  ByteVector low_table;
  ByteVector high_table;
  ByteVector first;

  // Adds two vectors of codes; gives the carries to the next place.
  HWY_INLINE void add_pair(const std::uint8_t* HWY_RESTRICT codes, LowBits& low, LowBits& high,
                           ByteVector& low_carry, ByteVector& high_carry) const {
    const auto a = place(codes);
    const auto b = place(codes + hn::Lanes(ByteTag()));
    add_bits(low.one, hn::TableLookupBytesOr0(low_table, a), hn::TableLookupBytesOr0(low_table, b),
             low_carry);
    add_bits(high.one, hn::TableLookupBytesOr0(high_table, a),
             hn::TableLookupBytesOr0(high_table, b), high_carry);
  }

 private:
  HWY_INLINE ByteVector place(const std::uint8_t* HWY_RESTRICT codes) const {
    const ByteTag d;
    // 0 to 15 stays below 0x80; everything else gets the bit that makes a lookup give 0.
    const auto biased =
        hn::SaturatedAdd(hn::Sub(hn::Load(d, codes), first), hn::Set(d, std::uint8_t{0x70}));
#if HWY_ARCH_X86
    return biased;  // a lookup there ignores the bits between
#else
    return hn::And(biased, hn::Set(d, std::uint8_t{0x8f}));
#endif
  }
};

// Adds 8 vectors of codes; gives what is carried to the place of 8.
HWY_INLINE void count_step(const GroupLookup& lookup, const std::uint8_t* HWY_RESTRICT codes,
                           LowBits& low, LowBits& high, ByteVector& low_eight,
                           ByteVector& high_eight) {
  const std::size_t pair = 2 * hn::Lanes(ByteTag());
  ByteVector low_a, low_b, high_a, high_b, low_four, high_four;
  lookup.add_pair(codes, low, high, low_a, high_a);
  lookup.add_pair(codes + pair, low, high, low_b, high_b);
  add_bits(low.two, low_a, low_b, low_four);
  add_bits(high.two, high_a, high_b, high_four);
  lookup.add_pair(codes + 2 * pair, low, high, low_a, high_a);
  lookup.add_pair(codes + 3 * pair, low, high, low_b, high_b);
  add_bits(low.two, low_a, low_b, low_a);
  add_bits(high.two, high_a, high_b, high_a);
  add_bits(low.four, low_four, low_a, low_eight);
  add_bits(high.four, high_four, high_a, high_eight);
}

HWY_INLINE void count_carries(ByteVector eight_a, ByteVector eight_b, ByteVector (&bits)[8]) {
  ByteVector carry;
  add_bits(bits[3], eight_a, eight_b, carry);
  for (int k = 4; k < 8; ++k) {
    const auto next = hn::And(bits[k], carry);
    bits[k] = hn::Xor(bits[k], carry);
    carry = next;
  }
}

template <int kDistance>
HWY_INLINE void swap_bits(ByteVector& a, ByteVector& b, ByteVector mask) {
  const WordTag dw;  // there is no shift of bytes; the mask removes what comes from the neighbour
  const ByteTag d;
  const auto shifted = hn::BitCast(d, hn::ShiftRight<kDistance>(hn::BitCast(dw, a)));
  const auto moved = hn::And(hn::Xor(shifted, b), mask);
  b = hn::Xor(b, moved);
  a = hn::Xor(a, hn::BitCast(d, hn::ShiftLeft<kDistance>(hn::BitCast(dw, moved))));
}

// Turns bit k of 8 counters into 8 counters of 8 bits (a transposition of 8 x 8 bits in every byte)
// and adds their sums over all bytes to 8 counts.
HWY_INLINE void add_counters(ByteVector (&bits)[8], std::uint32_t* counts) {
  const ByteTag d;
  const auto by_4 = hn::Set(d, std::uint8_t{0x0f});
  const auto by_2 = hn::Set(d, std::uint8_t{0x33});
  const auto by_1 = hn::Set(d, std::uint8_t{0x55});
  for (int k = 0; k < 4; ++k) swap_bits<4>(bits[k], bits[k + 4], by_4);
  for (int k : {0, 1, 4, 5}) swap_bits<2>(bits[k], bits[k + 2], by_2);
  for (int k : {0, 2, 4, 6}) swap_bits<1>(bits[k], bits[k + 1], by_1);
  const hn::ScalableTag<std::uint64_t> dl;
  for (int k = 0; k < 8; k += 4) {
    // Four sums, each far below 2^16, in one 64-bit lane.
    const auto low = hn::Or(hn::SumsOf8(bits[k]), hn::ShiftLeft<16>(hn::SumsOf8(bits[k + 1])));
    const auto high = hn::Or(hn::SumsOf8(bits[k + 2]), hn::ShiftLeft<16>(hn::SumsOf8(bits[k + 3])));
    const auto all = hn::Or(low, hn::ShiftLeft<32>(high));
    const std::uint64_t sums = hn::GetLane(hn::SumOfLanes(dl, all));
    for (int j = 0; j < 4; ++j) counts[k + j] += (sums >> (16 * j)) & 0xffff;
  }
}

// Adds up to kRunVectors vectors of codes from `first` to `first` + 15.
HWY_INLINE void count_run(const GroupLookup& lookup, const std::uint8_t* HWY_RESTRICT codes,
                          std::size_t vectors, std::uint32_t* counts) {
  const ByteTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  LowBits low = {zero, zero, zero}, high = low;
  ByteVector low_bits[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
  ByteVector high_bits[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
  for (std::size_t i = 0; i < vectors; i += 2 * kStep) {
    ByteVector low_a, high_a, low_b = zero, high_b = zero;
    count_step(lookup, codes + i * lanes, low, high, low_a, high_a);
    if (i + kStep < vectors) {
      count_step(lookup, codes + (i + kStep) * lanes, low, high, low_b, high_b);
    }
    count_carries(low_a, low_b, low_bits);
    count_carries(high_a, high_b, high_bits);
  }
  low_bits[0] = low.one, low_bits[1] = low.two, low_bits[2] = low.four;
  high_bits[0] = high.one, high_bits[1] = high.two, high_bits[2] = high.four;
  add_counters(low_bits, counts);
  add_counters(high_bits, counts + 8);
}

template <class T>
HWY_INLINE void bin_many(const T* HWY_RESTRICT x, std::size_t n, int base, const BinExtent& extent,
                         std::uint64_t* HWY_RESTRICT counts) {
  HWY_ALIGN static constexpr std::uint8_t kOneBit[24] = {0,  0,  0,  0,   0, 0, 0, 0, 1, 2, 4, 8,
                                                         16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0};
  const ByteTag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint8_t codes[kBlockBytes / sizeof(T) + kStep * HWY_MAX_BYTES];
  const std::size_t written = write_codes(x, n, base, codes);
  const std::size_t vectors = (written + kStep - 1) / kStep * kStep;
  std::memset(codes + written * lanes, kNoBucket, (vectors - written) * lanes);
  GroupLookup lookup = {hn::LoadDup128(d, kOneBit + 8), hn::LoadDup128(d, kOneBit), hn::Zero(d)};

  std::uint32_t by_code[2][kPerSign] = {};
  const std::size_t min_depth = depth_of(static_cast<T>(extent.abs_min), base);
  const std::size_t max_depth = depth_of(static_cast<T>(extent.abs_max), base);
  for (std::size_t negative = 0; negative < 2; ++negative) {
    if (negative != 0 ? !extent.has_negative : !extent.has_positive) continue;
    for (std::size_t depth = 0; depth < kPerSign; depth += 16) {
      if (depth + 15 < min_depth || depth > max_depth) continue;
      lookup.first = hn::Set(d, static_cast<std::uint8_t>(negative * 0x80 + depth));
      for (std::size_t i = 0; i < vectors; i += kRunVectors) {
        count_run(lookup, codes + i * lanes, HWY_MIN(kRunVectors, vectors - i),
                  by_code[negative] + depth);
      }
      if (negative == 0 && depth == 0) counts[kPerSign] -= written * lanes - n;  // the filling
    }
  }
  for (std::size_t i = 0; i < kPerSign; ++i) {
    counts[kPerSign + i] += by_code[0][i];
    counts[kPerSign - 1 - i] += by_code[1][i];
  }
}

template <class T>
HWY_INLINE void bin_all(const T* HWY_RESTRICT x, std::size_t n, int base, const BinExtent& extent,
                        std::uint64_t* HWY_RESTRICT counts) {
  constexpr std::size_t kVeryFew = 16;
  if (n < kVeryFew) {
    bin_one_by_one(x, n, base, counts);
  } else if (n < kFew) {
    bin_few(x, n, base, counts);
  } else {
    bin_many(x, n, base, extent, counts);
  }
}

#endif

void bin_float(const float* x, std::size_t n, int top, const BinExtent& extent,
               std::uint64_t* counts) {
  bin_all(x, n, base_index<float>(top), extent, counts);
}
void bin_double(const double* x, std::size_t n, int top, const BinExtent& extent,
                std::uint64_t* counts) {
  bin_all(x, n, base_index<double>(top), extent, counts);
}

}  // namespace HWY_NAMESPACE
}  // namespace tensortap::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tensortap::tensor {

HWY_EXPORT(bin_float);
HWY_EXPORT(bin_double);

void bin_block(const float* x, std::size_t n, int top, const BinExtent& extent,
               std::uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(bin_float)(x, n, top, extent, counts);
}
void bin_block(const double* x, std::size_t n, int top, const BinExtent& extent,
               std::uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(bin_double)(x, n, top, extent, counts);
}

}  // namespace tensortap::tensor
#endif  // HWY_ONCE
