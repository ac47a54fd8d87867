// A rule looks at one finished step after the other and says what is wrong. The same object runs in
// the training process, beside it, and over a recorded run; it sees the same StepView each time, so
// the findings agree. A rule may keep state between steps; it sees steps in ascending global order.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rules/finding.h"
#include "rules/parameters.h"
#include "trace/step_record.h"

namespace tensortap {

class Trial;

// One worker's part of a step.
struct WorkerStep {
  std::string_view worker;
  std::uint32_t worker_index = 0;  // stable over the run
  const StepRecord* record = nullptr;
  const Dictionary* dictionary = nullptr;
};

struct StepView {
  std::int64_t step = 0;  // global
  Mode mode = Mode::kGlobal;
  std::int64_t mode_step = 0;
  std::span<const WorkerStep> workers;  // those that have the step
};

// A finding about a tensor at that step, to which the rule adds what it saw and what it means.
Finding finding_at(const StepView& step, std::string_view tensor, std::string_view worker);

// How much a rule has seen: silence must never look like health.
struct Coverage {
  std::uint64_t checked_steps = 0;
  std::uint64_t matched_tensors = 0;  // distinct names
  std::uint64_t checked_tensor_steps = 0;
  std::uint64_t skipped_steps = 0;  // steps at which nothing matched
};

class Rule {
 public:
  virtual ~Rule() = default;
  // Appends what it finds at this step; `rule` is filled in by the engine.
  virtual void check(const StepView& step, std::vector<Finding>& findings) = 0;
  // A step before the rule's start_step: to remember, not to judge.
  virtual void observe(const StepView&) {}
  virtual Coverage coverage() const = 0;
  // What it looks for, for "matched no tensor" messages.
  virtual std::string selection() const = 0;
  // The collections among it, for saying that one of them was not saved.
  virtual std::vector<std::string> wanted_collections() const { return {}; }
};

struct RuleDescriptor {
  std::string_view name;     // "VanishingGradient"
  std::string_view summary;  // one line
  std::string_view doc;      // what it detects, how, what to do about it, source; Markdown
  std::span<const ParameterDescriptor> parameters;
  std::span<const std::string_view> collections;  // that should be captured for it to see something
  std::unique_ptr<Rule> (*create)(const Parameters& parameters);
};

}  // namespace tensortap
