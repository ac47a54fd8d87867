#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tensortap {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr std::size_t kWordBytes = 8;

using ByteTable = std::array<std::uint32_t, 256>;

// What one zero byte does to a register that holds only `low_byte`.
constexpr std::uint32_t advance_byte(std::uint32_t low_byte) {
  for (int bit = 0; bit < 8; ++bit) {
    low_byte = (low_byte >> 1) ^ ((low_byte & 1) != 0 ? kPolynomial : 0);
  }
  return low_byte;
}

// Table k gives the effect of a byte that k further bytes follow ("slicing by 8").
constexpr std::array<ByteTable, kWordBytes> make_slices() {
  std::array<ByteTable, kWordBytes> slices{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) slices[0][byte] = advance_byte(byte);
  for (std::size_t k = 1; k < kWordBytes; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = slices[k - 1][byte];
      slices[k][byte] = (before >> 8) ^ slices[0][before & 0xFF];
    }
  }
  return slices;
}

constexpr auto kSlices = make_slices();

std::uint64_t load_word(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// The register is kept inverted between calls, as the definition of CRC32C wants.
std::uint32_t update_portable(std::uint32_t state, const std::byte* bytes, std::size_t size) {
  for (; size >= kWordBytes; size -= kWordBytes, bytes += kWordBytes) {
    const std::uint64_t word = load_word(bytes) ^ state;
    state = 0;
    for (std::size_t i = 0; i < kWordBytes; ++i) {
      state ^= kSlices[kWordBytes - 1 - i][(word >> (8 * i)) & 0xFF];
    }
  }
  for (; size > 0; --size, ++bytes) {
    state = (state >> 8) ^ kSlices[0][(state ^ std::to_integer<std::uint32_t>(*bytes)) & 0xFF];
  }
  return state;
}

#if defined(__x86_64__)

// Appending zero bytes is linear in the register's bits: column i is the image of bit i alone.
using BitMatrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t apply(const BitMatrix& matrix, std::uint32_t state) {
  std::uint32_t result = 0;
  for (std::size_t bit = 0; bit < 32; ++bit) {
    if (((state >> bit) & 1) != 0) result ^= matrix[bit];
  }
  return result;
}

constexpr BitMatrix zero_bytes_matrix(std::size_t power_of_two_bytes) {
  BitMatrix matrix{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t state = std::uint32_t{1} << bit;
    matrix[bit] = (state >> 8) ^ advance_byte(state & 0xFF);
  }
  for (; power_of_two_bytes > 1; power_of_two_bytes /= 2) {
    BitMatrix doubled{};
    for (std::size_t bit = 0; bit < 32; ++bit) doubled[bit] = apply(matrix, matrix[bit]);
    matrix = doubled;
  }
  return matrix;
}

// The matrix with one look-up for each byte of the register.
struct ZeroBytes {
  std::array<ByteTable, 4> tables{};

  constexpr explicit ZeroBytes(std::size_t power_of_two_bytes) {
    const BitMatrix matrix = zero_bytes_matrix(power_of_two_bytes);
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t image = 0;
        for (std::size_t bit = 0; bit < 8; ++bit) {
          if (((byte >> bit) & 1) != 0) image ^= matrix[8 * k + bit];
        }
        tables[k][byte] = image;
      }
    }
  }

  std::uint32_t operator()(std::uint32_t state) const {
    return tables[0][state & 0xFF] ^ tables[1][(state >> 8) & 0xFF] ^
           tables[2][(state >> 16) & 0xFF] ^ tables[3][state >> 24];
  }
};

// The instruction gives a result every cycle but takes three, so three independent streams keep it
// busy. The large stride makes joining them cheap, the small one serves the rest.
constexpr std::size_t kLargeStride = 4096;
constexpr std::size_t kSmallStride = 256;
constexpr ZeroBytes kSkipLargeStride(kLargeStride);
constexpr ZeroBytes kSkipSmallStride(kSmallStride);

__attribute__((target("sse4.2"))) std::uint32_t update_three_streams(std::uint32_t state,
                                                                     const std::byte* bytes,
                                                                     std::size_t stride,
                                                                     const ZeroBytes& skip) {
  std::uint64_t first = state;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (std::size_t i = 0; i < stride; i += kWordBytes) {
    first = _mm_crc32_u64(first, load_word(bytes + i));
    second = _mm_crc32_u64(second, load_word(bytes + stride + i));
    third = _mm_crc32_u64(third, load_word(bytes + 2 * stride + i));
  }
  const std::uint32_t two =
      skip(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
  return skip(two) ^ static_cast<std::uint32_t>(third);
}

__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t state,
                                                             const std::byte* bytes,
                                                             std::size_t size) {
  for (; size >= 3 * kLargeStride; size -= 3 * kLargeStride, bytes += 3 * kLargeStride) {
    state = update_three_streams(state, bytes, kLargeStride, kSkipLargeStride);
  }
  for (; size >= 3 * kSmallStride; size -= 3 * kSmallStride, bytes += 3 * kSmallStride) {
    state = update_three_streams(state, bytes, kSmallStride, kSkipSmallStride);
  }
  std::uint64_t wide = state;
  for (; size >= kWordBytes; size -= kWordBytes, bytes += kWordBytes) {
    wide = _mm_crc32_u64(wide, load_word(bytes));
  }
  state = static_cast<std::uint32_t>(wide);
  for (; size > 0; --size, ++bytes) {
    state = _mm_crc32_u8(state, std::to_integer<std::uint8_t>(*bytes));
  }
  return state;
}

#endif

std::uint32_t update(std::uint32_t state, const std::byte* bytes, std::size_t size) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return update_sse42(state, bytes, size);
#endif
  return update_portable(state, bytes, size);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) { return crc32c_extend(0, bytes); }

std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) {
  return ~update(~crc, bytes.data(), bytes.size());
}

std::uint32_t crc32c_extend_portable(std::uint32_t crc, std::span<const std::byte> bytes) {
  return ~update_portable(~crc, bytes.data(), bytes.size());
}

}  // namespace tensortap
