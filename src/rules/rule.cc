#include "rules/rule.h"

namespace tensortap {

Finding finding_at(const StepView& step, std::string_view tensor, std::string_view worker) {
  Finding finding;
  finding.tensor = tensor;
  finding.worker = worker;
  finding.step = step.step;
  finding.mode = step.mode;
  finding.mode_step = step.mode_step;
  return finding;
}

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kSystem:
      return "system";
    case Stage::kData:
      return "data";
    case Stage::kLearningRate:
      return "learning rate";
    case Stage::kPrecision:
      return "precision";
    case Stage::kWeights:
      return "weights";
    case Stage::kOptimizer:
      return "optimizer";
    case Stage::kGradient:
      return "gradient";
    case Stage::kActivation:
      return "activation";
    case Stage::kLoss:
      return "loss";
    case Stage::kNonFinite:
      return "non-finite";
  }
  return "";
}

std::string_view rule_family_name(RuleFamily family) {
  switch (family) {
    case RuleFamily::kClassic:
      return "classic";
    case RuleFamily::kModern:
      return "modern";
    case RuleFamily::kTree:
      return "tree";
    case RuleFamily::kSystem:
      return "system";
  }
  return "";
}

}  // namespace tensortap
