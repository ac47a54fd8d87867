// CRC32C (Castagnoli, reflected 0x82F63B78), hardware-accelerated where SSE4.2 is there. Check
// value of "123456789": 0xE3069283. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensortap {

std::uint32_t crc32c(std::span<const std::byte> bytes);
// Continues: crc32c_extend(crc32c(a), b) == crc32c(a + b).
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes);
// The same without special instructions: what crc32c_extend uses on other processors.
std::uint32_t crc32c_extend_portable(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace tensortap
