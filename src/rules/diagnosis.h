// Joins the findings of a run into diagnoses: vanishing gradients, saturated layers and a poor
// initialisation are one illness, not three alarms. Used by cli/commands/diagnose.cc and the
// bindings. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rules/finding.h"
#include "rules/rule.h"

namespace tensortap {

// All findings of one rule, as one sign of an illness.
struct Symptom {
  std::string rule;
  Stage stage = Stage::kLoss;
  Severity severity = Severity::kInfo;  // the worst
  std::uint64_t finding_count = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::vector<std::string> tensors;  // distinct, in order of appearance
  Finding first;
};

struct Diagnosis {
  std::string title;
  std::string explanation;
  std::vector<std::string> causes;  // likely ones
  std::string next_step;
  Severity severity = Severity::kInfo;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::vector<Symptom> symptoms;  // causes before what they cause
};

// Worst first. `saved_steps` are the steps of the run, ascending: findings within ten of them
// belong together, unless a known illness joins them anyway. Findings of rules that are not built
// in are taken as signs of their own kind.
std::vector<Diagnosis> diagnose(std::span<const Finding> findings,
                                std::span<const std::int64_t> saved_steps);

std::string to_json(const Diagnosis& diagnosis);

}  // namespace tensortap
