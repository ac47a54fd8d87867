// The numbers of the trace format, version 1; docs/trace-format.md says what they mean and why.
// Included by trace/ only: nobody else knows the bytes. Changing any of these breaks every trace
// ever written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensortap::trace {

// Not text (high bit), and damaged by any tool that translates line ends.
inline constexpr std::array<std::uint8_t, 8> kSegmentMagic = {0x89, 'T',  'T',  'A',
                                                              'P',  0x0D, 0x0A, 0x1A};
inline constexpr std::uint16_t kMajorVersion = 1;
inline constexpr std::uint16_t kMinorVersion = 0;
inline constexpr std::uint64_t kKnownFeatures = 0;  // bits that a reader must understand

inline constexpr std::size_t kSegmentHeaderSize = 64;
inline constexpr std::uint32_t kFrameMagic = 0x31465454;  // "TTF1"
inline constexpr std::size_t kFrameHeaderSize = 32;
inline constexpr std::size_t kFrameAlignment = 8;
inline constexpr std::size_t kRawAlignment = 64;
inline constexpr std::uint64_t kMaxPayloadSize = std::uint64_t{1} << 62;

enum class FrameType : std::uint8_t {
  kSession = 1,
  kDictionary = 2,
  kRaw = 3,
  kText = 4,
  kStep = 5,
  kColumns = 6,
  kIndex = 7,
  kTrailer = 8,
};

// Frame flag: the payload checksum covers only the first checked_units * 8 bytes; the rest is
// checked by whoever refers to it.
inline constexpr std::uint8_t kFlagPartlyChecked = 1;

inline constexpr std::size_t kRawPreludeSize = 32;
inline constexpr std::size_t kStepHeadSize = 64;
inline constexpr std::size_t kRawEntrySize = 40;
inline constexpr std::size_t kTextEntrySize = 24;
inline constexpr std::size_t kColumnHeaderSize = 8;
inline constexpr std::size_t kIndexHeadSize = 128;
inline constexpr std::size_t kIndexStepSize = 56;
inline constexpr std::size_t kDirectoryEntrySize = 16;
inline constexpr std::size_t kTensorHeadSize = 16;
inline constexpr std::size_t kTensorColumnSize = 32;
inline constexpr std::size_t kTrailerSize = 32;

// Column codes: a StatisticId, or one of these.
inline constexpr std::uint8_t kColumnTensor = 0xF0;
inline constexpr std::uint8_t kColumnLayout = 0xF1;
inline constexpr std::uint8_t kColumnOrdinal = 0xF2;
inline constexpr std::uint8_t kColumnRaw = 0xF3;   // records: u32 ordinal, u32 0, raw entry
inline constexpr std::uint8_t kColumnText = 0xF4;  // records: u32 ordinal, u32 0, text entry

inline constexpr std::uint8_t kCodecNone = 0;
inline constexpr std::uint8_t kCodecZstd = 1;
inline constexpr std::uint32_t kTensorFlagEveryStep = 1;  // ordinals are 0, 1, 2 ...

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace tensortap::trace
