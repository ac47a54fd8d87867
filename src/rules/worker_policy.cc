#include "rules/worker_policy.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

std::string_view policy_name(WorkerPolicy policy) {
  switch (policy) {
    case WorkerPolicy::kAny:
      return "any";
    case WorkerPolicy::kFirst:
      return "first";
    case WorkerPolicy::kMean:
      return "mean";
  }
  return "";
}

}  // namespace

WorkerPolicy parse_worker_policy(std::string_view owner, std::string_view text,
                                 std::span<const WorkerPolicy> allowed) {
  std::vector<std::string> names;
  for (const WorkerPolicy policy : allowed) {
    if (policy_name(policy) == text) return policy;
    names.emplace_back(policy_name(policy));
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rule {}: parameter 'worker_policy' must be one of {}, not '{}'", owner,
                          join(names, ", "), text));
}

std::span<const WorkerStep> judged_workers(const StepView& step, WorkerPolicy policy) {
  return policy == WorkerPolicy::kFirst && !step.workers.empty() ? step.workers.first(1)
                                                                 : step.workers;
}

}  // namespace tensortap
