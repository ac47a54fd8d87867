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

}  // namespace tensortap
