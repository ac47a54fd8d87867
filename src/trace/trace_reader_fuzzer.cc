// Any bytes as a segment: opened, followed half way, asked everything, verified. The fuzzer cannot
// guess checksums, so the first byte of the input may say that they are to be made right; then
// sizes, counts and positions reach the code behind them.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "trace/format.h"
#include "trace/frame.h"
#include "trace/trace_reader.h"

namespace tensortap::trace {
namespace {

constexpr std::size_t kMaxTensors = 64;
constexpr std::size_t kMaxSteps = 64;

void put_crc(std::string& bytes, std::size_t at, std::size_t from, std::size_t size) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).subspan(from, size));
  std::memcpy(bytes.data() + at, &crc, sizeof crc);
}

template <class T>
T load(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Makes positions and checksums right, frame by frame, as far as sizes lead.
void repair(std::string& bytes) {
  if (bytes.size() < kSegmentHeaderSize) return;
  std::memcpy(bytes.data(), kSegmentMagic.data(), kSegmentMagic.size());
  const std::uint16_t major = kMajorVersion;
  std::memcpy(bytes.data() + 8, &major, sizeof major);
  std::memset(bytes.data() + 48, 0, 8);
  put_crc(bytes, 60, 0, 60);
  std::size_t at = kSegmentHeaderSize;
  while (at + kFrameHeaderSize <= bytes.size()) {
    std::memcpy(bytes.data() + at, &kFrameMagic, sizeof kFrameMagic);
    const std::uint64_t position = at;
    std::memcpy(bytes.data() + at + 16, &position, sizeof position);
    const std::size_t room = bytes.size() - at - kFrameHeaderSize;
    auto size = load<std::uint64_t>(bytes, at + 8);
    if (size > room) {
      size = room == 0 ? 0 : size % (room + 1);
      std::memcpy(bytes.data() + at + 8, &size, sizeof size);
    }
    std::uint64_t checked = size;
    if ((load<std::uint8_t>(bytes, at + 5) & kFlagPartlyChecked) != 0) {
      checked =
          std::min<std::uint64_t>(size, load<std::uint16_t>(bytes, at + 6) * std::uint64_t{8});
    }
    put_crc(bytes, at + 24, at + kFrameHeaderSize, static_cast<std::size_t>(checked));
    put_crc(bytes, at + 28, at, 28);
    at += kFrameHeaderSize + static_cast<std::size_t>(round_up(size, kFrameAlignment));
  }
}

// The index's blocks have checksums of their own; the head lies in a frame that was just repaired.
void repair_index(std::string& bytes) {
  constexpr std::size_t kTrailerFrame = kFrameHeaderSize + kTrailerSize;
  if (bytes.size() < kSegmentHeaderSize + kTrailerFrame) return;
  const std::size_t trailer = bytes.size() - kTrailerSize;
  const auto index = load<std::uint64_t>(bytes, trailer);
  if (index > bytes.size() || bytes.size() - index < kFrameHeaderSize + kIndexHeadSize) return;
  const std::size_t head = static_cast<std::size_t>(index) + kFrameHeaderSize;
  for (const std::size_t block : {head + 16, head + 40, head + 64}) {
    const auto offset = load<std::uint64_t>(bytes, block);
    const auto size = load<std::uint64_t>(bytes, block + 8);
    if (offset > bytes.size() || size > bytes.size() - offset) continue;
    put_crc(bytes, block + 16, static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  }
}

void ask_everything(const WorkerSource& worker) {
  const auto tensors =
      static_cast<TensorId>(std::min(worker.dictionary().tensors.size(), kMaxTensors));
  const auto steps = static_cast<std::uint32_t>(std::min(worker.steps().size(), kMaxSteps));
  for (std::uint32_t step = 0; step < steps; ++step) {
    const auto record = worker.read_step(step);
    for (const StatisticsRow& row : record->rows) {
      if (row.tensor >= worker.dictionary().tensors.size()) __builtin_trap();
      if (row.layout >= worker.dictionary().layouts.size()) __builtin_trap();
    }
  }
  for (TensorId tensor = 0; tensor < tensors; ++tensor) {
    for (const std::uint32_t ordinal : worker.tensor_ordinals(tensor)) {
      if (ordinal >= worker.steps().size()) __builtin_trap();
    }
    SourceColumn column;
    worker.read_column(tensor, StatisticId::kL2, 0, UINT32_MAX, column);
    worker.read_column(tensor, StatisticId::kZeroCount, 1, 3, column);
    if (column.ordinals.size() != column.values.size()) __builtin_trap();
    for (std::uint32_t step = 0; step < steps; ++step) {
      (void)worker.read_row(tensor, step);
      (void)worker.read_raw(tensor, step);
      (void)worker.read_text(tensor, step);
    }
  }
}

void read(const std::string& bytes) {
  const auto storage = open_storage("mem:fuzz");
  const std::string name = segment_name("w", 0);
  storage->remove(name);
  storage->put(kRunFile, "{}");
  const auto file = storage->create(name);
  const std::span<const std::byte> all = std::as_bytes(std::span(bytes));
  const std::span<const std::byte> first = all.first(all.size() / 2);
  const std::span<const std::byte> second = all.subspan(all.size() / 2);
  try {
    file->append(std::span(&first, 1));
    const auto followed = open_trace(storage);
    file->append(std::span(&second, 1));
    followed->refresh();
    for (const WorkerSource* worker : followed->workers()) ask_everything(*worker);
    const auto opened = open_trace(storage);
    for (const WorkerSource* worker : opened->workers()) ask_everything(*worker);
    (void)verify_trace(*storage);
    (void)find_resume_point(*storage, "w");
  } catch (const Error&) {
    // A newer version, for example: a clear refusal.
  }
}

}  // namespace
}  // namespace tensortap::trace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(data + 1, data + size);
  if ((data[0] & 1) != 0) tensortap::trace::repair(bytes);
  if ((data[0] & 2) != 0) {
    tensortap::trace::repair_index(bytes);
    tensortap::trace::repair(bytes);
  }
  tensortap::trace::read(bytes);
  return 0;
}
