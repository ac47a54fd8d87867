// What the kernels are tested against: every statistic written down plainly, in long double and two
// passes, and a decoder of every dtype by the definition of its format. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/histogram.h"
#include "tensor/statistics.h"

namespace tensortap::reference {

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;
  bool is_fnuz;
};

inline double decode(std::uint32_t bits, const FloatFormat& format) {
  const int sign_at = format.exponent_bits + format.mantissa_bits;
  const std::uint32_t magnitude = bits & ((1u << sign_at) - 1);
  const bool is_negative = (bits >> sign_at & 1) != 0;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  if (format.is_fnuz && bits == 1u << sign_at) return nan;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << format.mantissa_bits) - 1));
  const bool is_last_exponent = exponent == (1 << format.exponent_bits) - 1;
  if (format.has_inf && is_last_exponent) {
    if (mantissa != 0) return nan;
    return is_negative ? -std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::infinity();
  }
  if (!format.has_inf && !format.is_fnuz && magnitude == (1u << sign_at) - 1) return nan;
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits)
                                     : std::ldexp(mantissa + (1 << format.mantissa_bits),
                                                  exponent - format.bias - format.mantissa_bits);
  return is_negative ? -value : value;
}

inline FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {5, 10, 15, true, false};
    case DType::kBFloat16:
      return {8, 7, 127, true, false};
    case DType::kFloat8E4M3FN:
      return {4, 3, 7, false, false};
    case DType::kFloat8E5M2:
      return {5, 2, 15, true, false};
    case DType::kFloat8E4M3FNUZ:
      return {4, 3, 8, false, true};
    default:
      return {5, 2, 16, false, true};
  }
}

inline double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return std::numeric_limits<double>::min();
    case DType::kFloat32:
    case DType::kComplex64:
      return std::numeric_limits<float>::min();
    default:
      break;
  }
  if (!dtype_is_floating(dtype)) return 0.0;
  return std::ldexp(1.0, 1 - float_format(dtype).bias);
}

template <class T>
T load(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// The element as NumPy would cast it to float64; a complex one becomes its magnitude.
inline double element_value(DType dtype, const void* element) {
  switch (dtype) {
    case DType::kFloat64:
      return load<double>(element);
    case DType::kFloat32:
      return load<float>(element);
    case DType::kFloat16:
    case DType::kBFloat16:
      return decode(load<std::uint16_t>(element), float_format(dtype));
    case DType::kComplex64: {
      const auto* part = static_cast<const std::byte*>(element);
      return std::hypot(static_cast<double>(load<float>(part)),
                        static_cast<double>(load<float>(part + 4)));
    }
    case DType::kComplex128: {
      const auto* part = static_cast<const std::byte*>(element);
      return std::hypot(load<double>(part), load<double>(part + 8));
    }
    case DType::kInt8:
      return load<std::int8_t>(element);
    case DType::kInt16:
      return load<std::int16_t>(element);
    case DType::kInt32:
      return load<std::int32_t>(element);
    case DType::kInt64:
      return static_cast<double>(load<std::int64_t>(element));
    case DType::kUInt8:
      return load<std::uint8_t>(element);
    case DType::kUInt16:
      return load<std::uint16_t>(element);
    case DType::kUInt32:
      return load<std::uint32_t>(element);
    case DType::kUInt64:
      return static_cast<double>(load<std::uint64_t>(element));
    case DType::kBool:
      return load<std::uint8_t>(element) != 0 ? 1.0 : 0.0;
    default:
      return decode(load<std::uint8_t>(element), float_format(dtype));
  }
}

struct Moments {
  double mean;
  double variance;
};

inline Moments moments(const std::vector<double>& x) {
  long double sum = 0.0L;
  for (const double v : x) sum += v;
  long double mean = sum / static_cast<long double>(x.size());
  long double rest = 0.0L;
  for (const double v : x) rest += v - mean;
  mean += rest / static_cast<long double>(x.size());
  long double squares = 0.0L;
  for (const double v : x) squares += (v - mean) * (v - mean);
  return {static_cast<double>(mean),
          static_cast<double>(squares / static_cast<long double>(x.size()))};
}

inline Statistics statistics(const std::vector<double>& values, double normal) {
  Statistics s;
  s.count = values.size();
  std::vector<double> finite, magnitudes;
  for (const double v : values) {
    s.nan_count += std::isnan(v);
    s.positive_inf_count += std::isinf(v) && v > 0;
    s.negative_inf_count += std::isinf(v) && v < 0;
    if (!std::isfinite(v)) continue;
    const double magnitude = std::fabs(v);
    finite.push_back(v);
    magnitudes.push_back(magnitude);
    s.zero_count += magnitude == 0;
    s.subnormal_count += magnitude > 0 && magnitude < normal;
    s.overflow_count += magnitude >= 65520.0;
    s.underflow_count += magnitude > 0 && magnitude <= std::ldexp(1.0, -25);
  }
  if (finite.empty()) {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    s.min = s.max = s.mean = s.variance = s.abs_min = s.abs_mean = s.abs_variance = nan;
    return s;
  }
  s.min = *std::min_element(finite.begin(), finite.end());
  s.max = *std::max_element(finite.begin(), finite.end());
  s.abs_min = *std::min_element(magnitudes.begin(), magnitudes.end());
  const Moments signed_moments = moments(finite);
  const Moments abs_moments = moments(magnitudes);
  s.mean = signed_moments.mean;
  s.variance = signed_moments.variance;
  s.abs_mean = abs_moments.mean;
  s.abs_variance = abs_moments.variance;
  return s;
}

// By the bounds that Histogram itself gives, not by bits.
inline Histogram histogram(const std::vector<double>& values) {
  Histogram h;
  double largest = 0.0;
  for (const double v : values) {
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  }
  if (largest == 0.0) return h;
  int top = 2 * std::ilogb(largest) - 2;  // surely below
  while (top < 2047 && Histogram::edge(top + 1) <= largest) ++top;
  h.top = static_cast<std::int16_t>(top);
  for (const double v : values) {
    if (!std::isfinite(v) || v == 0.0) continue;
    int bucket = v < 0 ? 0 : Histogram::kBucketCount - 1;
    while (v < 0 ? v > h.upper(bucket) : v < h.lower(bucket)) bucket += v < 0 ? 1 : -1;
    ++h.counts[static_cast<std::size_t>(bucket)];
  }
  return h;
}

}  // namespace tensortap::reference
