#include "trace/compression.h"

#include <new>

#include <zstd.h>

namespace tensortap::trace {
namespace {

constexpr int kLevel = 1;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

template <std::size_t kWidth>
void unshuffle_fixed(std::span<const std::byte> in, std::byte* out) {
  const std::size_t count = in.size() / kWidth;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t rank = 0; rank < kWidth; ++rank) {
      out[i * kWidth + rank] = in[rank * count + i];
    }
  }
}

}  // namespace

struct Compressor::State {
  std::unique_ptr<ZSTD_CCtx, FreeContext> context{ZSTD_createCCtx()};
};

Compressor::Compressor() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}
Compressor::~Compressor() = default;

bool Compressor::compress(std::span<const std::byte> bytes, ByteBuffer& out) {
  const std::size_t start = out.size();
  // Less room than the worst case: zstd gives up as soon as it sees that the gain is too small.
  const std::size_t room = bytes.size() - bytes.size() / 8;
  const std::size_t size = ZSTD_compressCCtx(state_->context.get(), out.extend(room), room,
                                             bytes.data(), bytes.size(), kLevel);
  const bool gained = ZSTD_isError(size) == 0;
  out.truncate(start + (gained ? size : 0));
  return gained;
}

bool decompress(std::span<const std::byte> bytes, std::span<std::byte> out) noexcept {
  const std::size_t size = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

void shuffle(std::span<const std::byte> in, std::size_t width, std::byte* out) noexcept {
  const std::size_t count = in.size() / width;
  for (std::size_t rank = 0; rank < width; ++rank) {
    for (std::size_t i = 0; i < count; ++i) out[rank * count + i] = in[i * width + rank];
  }
}

void unshuffle(std::span<const std::byte> in, std::size_t width, std::byte* out) noexcept {
  switch (width) {
    case 2:
      return unshuffle_fixed<2>(in, out);
    case 4:
      return unshuffle_fixed<4>(in, out);
    case 8:
      return unshuffle_fixed<8>(in, out);
    default:
      return unshuffle_fixed<1>(in, out);
  }
}

}  // namespace tensortap::trace
