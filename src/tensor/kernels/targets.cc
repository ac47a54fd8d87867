// Which SIMD targets there are, and how tests and benchmarks force one.

#include "tensor/block_kernels.h"

// clang-format off: the order matters
#include <hwy/highway.h>
#include <hwy/targets.h>

#include "tensor/kernel_targets.h"
// clang-format on

namespace tensortap::tensor {
namespace {

void use_targets(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);  // 0 = what the CPU has
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Best first: a better target has the lower bit.
std::vector<std::int64_t> target_bits() {
  use_targets(0);
  return hwy::SupportedAndGeneratedTargets();
}

}  // namespace

std::vector<std::string> kernel_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : target_bits()) names.emplace_back(hwy::TargetName(target));
  return names;
}

bool force_kernel_target(const std::string& name) {
  for (const std::int64_t target : target_bits()) {
    if (name == hwy::TargetName(target)) {
      use_targets(target);
      return true;
    }
  }
  return name.empty();
}

}  // namespace tensortap::tensor
