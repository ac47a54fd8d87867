// Ends the training at the border of the step in which the rule fired.
#include "actions/action.h"
#include "actions/registry.h"

namespace tensortap {
namespace {

class StopTraining : public Action {
 public:
  void run(const Finding& finding, ActionContext& context) override {
    // Beside or after a training there is nothing to stop.
    if (context.request_stop) context.request_stop(finding);
  }
};

std::unique_ptr<Action> create(const Parameters& /*parameters*/) {
  return std::make_unique<StopTraining>();
}

}  // namespace

const ActionDescriptor& stop_training_action() {
  static const ActionDescriptor descriptor{
      .name = "stop_training",
      .summary = "Ends the training in the step in which the rule fires.",
      .doc =
          "Asks the training to stop at the border of the step in which the rule fires. The run is "
          "closed as after a training that came to its end, so everything recorded up to that "
          "step can be read. The first finding that asks stands as the reason. Outside a training "
          "(`tensortap check`) it does nothing.",
      .parameters = {},
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
