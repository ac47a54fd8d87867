// Utilisation and memory of NVIDIA GPUs, through the driver's management library, which is loaded
// when there is one and never linked. Used by Sampler. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "monitor/sample.h"

namespace tensortap {

class GpuReader {
 public:
  // Looks at those GPUs that CUDA_VISIBLE_DEVICES names, or at all. No library, no driver, no GPU:
  // there is nothing to read, and nothing is said.
  explicit GpuReader(const std::string& library);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  std::size_t gpu_count() const;
  void read(Sample& sample);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace tensortap
