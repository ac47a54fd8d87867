// Which SIMD targets there are, and how tests and benchmarks force one.

#include "tensor/block_kernels.h"

// The order matters.
// clang-format off
#include "tensor/kernel_targets.h"
#include <hwy/highway.h>
#include <hwy/targets.h>
// clang-format on

namespace tensortap::tensor {
namespace {

// Best first: a better target has the lower bit. Leaves a forced target in force.
std::vector<std::int64_t> target_bits() {
  const std::int64_t in_force = hwy::SupportedTargets();
  hwy::SetSupportedTargetsForTest(0);  // all that the CPU has
  std::vector<std::int64_t> bits = hwy::SupportedAndGeneratedTargets();
  hwy::SetSupportedTargetsForTest(in_force);
  return bits;
}

void use_targets(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::vector<std::string> kernel_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : target_bits()) names.emplace_back(hwy::TargetName(target));
  return names;
}

bool force_kernel_target(const std::string& name) {
  if (name.empty()) {
    use_targets(0);
    return true;
  }
  for (const std::int64_t target : target_bits()) {
    if (name == hwy::TargetName(target)) {
      use_targets(target);
      return true;
    }
  }
  return false;
}

}  // namespace tensortap::tensor
