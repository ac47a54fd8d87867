// Whose values a rule judges when a run has several workers: the parameter `worker_policy` of
// built-in rules. Pure functions, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "rules/rule.h"

namespace tensortap {

enum class WorkerPolicy { kAny, kFirst, kMean };

// Throws Error(kInvalidArgument) unless `text` is one of `allowed`.
WorkerPolicy parse_worker_policy(std::string_view owner, std::string_view text,
                                 std::span<const WorkerPolicy> allowed);

// For rules that judge each worker by itself: all that have the step, or the first of them.
std::span<const WorkerStep> judged_workers(const StepView& step, WorkerPolicy policy);

}  // namespace tensortap
