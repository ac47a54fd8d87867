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
  // What the step was read from: a record from a run leaves raw values there, to be read by whoever
  // wants them (values.h). Null in a training, where records have them.
  const Trial* trial = nullptr;
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
  // Matched, but not judged: the rule needs raw values, and none were kept.
  std::uint64_t valueless_tensor_steps = 0;
};

class Rule {
 public:
  virtual ~Rule() = default;
  // Appends what it finds at this step; `rule` is filled in by the engine.
  virtual void check(const StepView& step, std::vector<Finding>& findings) = 0;
  // A step before the rule's start_step: to remember, not to judge.
  virtual void observe(const StepView&) {}
  // Time has gone by without a step: asked by whoever waits for the next one. The clock is that of
  // StepInfo::wall_time_ns.
  virtual void pass_time(std::int64_t /*now_ns*/, std::vector<Finding>& /*findings*/) {}
  // No further step will come: for what can be said only now.
  virtual void finish(std::vector<Finding>& /*findings*/) {}
  virtual Coverage coverage() const = 0;
  // What it went without and can judge nothing without, though tensors matched; empty: it had it.
  virtual std::string missing_input() const { return {}; }
  // What it looks for, for "matched no tensor" messages.
  virtual std::string selection() const = 0;
  // Why it has nothing to judge in this run, when it knows better than "nothing matched"; else "".
  virtual std::string not_applicable() const { return {}; }
  // What there is to say beside findings, on one line, for the status at the end; else "".
  virtual std::string summary() const { return {}; }
  // The collections among it, for saying that one of them was not saved.
  virtual std::vector<std::string> wanted_collections() const { return {}; }
};

// Where in a training an illness sits, in the order in which one causes the next: findings that
// occur together are explained by the earliest of them.
enum class Stage : std::uint8_t {
  kSystem,
  kData,
  kLearningRate,
  kPrecision,
  kWeights,
  kOptimizer,
  kGradient,
  kActivation,
  kLoss,
  kNonFinite,
};
std::string_view stage_name(Stage stage);  // "system", "learning rate", …

// What a person is told beside the finding itself.
struct RuleAdvice {
  std::string_view why;                      // why it matters, one or two sentences
  std::span<const std::string_view> causes;  // the likely ones, likeliest first
  std::string_view next_step;                // what to do now
};

enum class RuleFamily : std::uint8_t { kClassic, kModern, kTree, kSystem };
std::string_view rule_family_name(RuleFamily family);  // "classic", "modern", "tree", "system"

struct RuleDescriptor {
  std::string_view name;     // "VanishingGradient"
  std::string_view summary;  // one line
  std::string_view doc;      // what it detects and how, options beyond its source, source; Markdown
  RuleFamily family = RuleFamily::kClassic;
  Stage stage = Stage::kLoss;
  RuleAdvice advice;
  std::span<const ParameterDescriptor> parameters;
  std::span<const std::string_view> collections;  // that should be captured for it to see something
  std::unique_ptr<Rule> (*create)(const Parameters& parameters);
};

// For RuleDescriptor::create.
template <typename T>
std::unique_ptr<Rule> make_rule(const Parameters& parameters) {
  return std::make_unique<T>(parameters);
}

}  // namespace tensortap
