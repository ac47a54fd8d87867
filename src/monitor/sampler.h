// Reads the machine's metrics in a thread of its own, so that the training thread makes no system
// call for them, and keeps the samples until somebody takes them. Used by session/. Thread-safe.
// After fork the child's copy does nothing. Nothing here harms a training: what cannot be read is
// absent from the samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "monitor/sample.h"

namespace tensortap {

struct SamplerOptions {
  std::int64_t interval_ms = 500;  // 100 to 60000
  // Samples that are kept. When nobody takes them, every second one is thrown away, so that the
  // rest still covers the whole time.
  std::size_t capacity = 4096;
  // For the tests.
  std::string proc_root = "/proc";
  std::string sys_root = "/sys";
  std::string gpu_library = "libnvidia-ml.so.1";
};
// Throws Error(kInvalidArgument).
void validate(const SamplerOptions& options);

class Sampler {
 public:
  // Starts the thread. The first sample comes after 100 ms, then one every interval. Throws what
  // std::thread throws when there can be no thread.
  explicit Sampler(SamplerOptions options);
  ~Sampler();  // stops
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Samples that can be taken: one load.
  std::size_t pending() const noexcept;
  // Exchanges what is there, oldest first, for the emptied `samples`.
  void take(std::vector<Sample>& samples);
  // Ends the thread; the samples stay. Idempotent.
  void stop() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensortap
