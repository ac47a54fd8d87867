// A rule of one's own in C++: says when the loss has fallen below a goal. Built as a shared object
// and loaded with
//
//   tensortap check RUN --plugin build/release/loss_below.so --rule LossBelow:goal=0.1
#include <array>

#include <fmt/core.h>

#include "rules/plugin_api.h"
#include "rules/tensor_rule.h"

namespace {

using namespace tensortap;

class LossBelow : public TensorRule {
 public:
  explicit LossBelow(const Parameters& parameters)
      : TensorRule({.collections = {"losses"}}), goal_(parameters.get_float("goal")) {}

 protected:
  // `findings` is null at a step that is only remembered, not judged.
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const std::optional<double> loss = single_value(row);
    if (findings == nullptr || !loss || *loss >= goal_) return;
    Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
    finding.severity = Severity::kInfo;
    finding.statistic = "value";
    finding.observed = *loss;
    finding.threshold = goal_;
    finding.message = fmt::format("{} is {:.4g} at step {}, below the goal of {:g}.",
                                  finding.tensor, *loss, finding.step, goal_);
    findings->push_back(std::move(finding));
  }

 private:
  const double goal_;
};

constexpr std::array<ParameterDescriptor, 1> kParameters = {{
    {.name = "goal",
     .type = ParameterType::kFloat,
     .doc = "The loss to get below.",
     .is_required = true},
}};
constexpr std::array<std::string_view, 1> kCauses = {"the training went well"};
constexpr std::array<std::string_view, 1> kCollections = {"losses"};

const RuleDescriptor kLossBelow{
    .name = "LossBelow",
    .summary = "A loss that has reached its goal.",
    .doc = "Fires at every training step at which a loss is below `goal`.",
    .family = RuleFamily::kClassic,
    .stage = Stage::kLoss,
    .advice = {"The goal is reached; more steps may be a waste.", kCauses, "Stop the training."},
    .parameters = kParameters,
    .collections = kCollections,
    .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
      return std::make_unique<LossBelow>(parameters);
    },
};

}  // namespace

TENSORTAP_RULE_PLUGIN(&kLossBelow)
