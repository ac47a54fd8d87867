#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/crc32c.h"

namespace tensortap {
namespace {

template <auto Extend>
void crc32c_of_bytes(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  for (auto _ : state) benchmark::DoNotOptimize(Extend(0, bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(crc32c_of_bytes<crc32c_extend>)->Arg(64)->Arg(4 << 10)->Arg(1 << 20);
BENCHMARK(crc32c_of_bytes<crc32c_extend_portable>)->Arg(1 << 20);

}  // namespace
}  // namespace tensortap
