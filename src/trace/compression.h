// zstd, and the byte shuffle that helps it: the bytes of equal rank of all values stand together,
// so that slowly changing exponents form runs. Used by trace/ only. A Compressor is not
// thread-safe; decompression never writes more than the caller said it expects.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace tensortap::trace {

class Compressor {
 public:
  Compressor();
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // Appends the compressed bytes to `out`, or nothing (and false) when they would not save an
  // eighth.
  bool compress(std::span<const std::byte> bytes, ByteBuffer& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// False unless the bytes decompress to exactly out.size() bytes.
bool decompress(std::span<const std::byte> bytes, std::span<std::byte> out) noexcept;

void shuffle(std::span<const std::byte> in, std::size_t width, std::byte* out) noexcept;
void unshuffle(std::span<const std::byte> in, std::size_t width, std::byte* out) noexcept;

}  // namespace tensortap::trace
