// Ends the training at the border of the step in which the rule fired.
#include "actions/action.h"
#include "actions/registry.h"

namespace tensortap {
namespace {

class StopTraining : public Action {
 public:
  ActionReply run(const Finding& finding, ActionContext& context) override {
    // After a training there is nothing to stop.
    if (!context.request_stop) return {"nothing to stop: no training is running"};
    context.request_stop(finding);
    return {"asked the training to stop"};
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
          "step can be read. The first finding that asks stands as the reason. From another "
          "process "
          "(`tensortap check RUN --follow`) the request goes through the run's control/, which the "
          "training looks at twice a second. Over a run that has ended it does nothing.",
      .parameters = {},
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
