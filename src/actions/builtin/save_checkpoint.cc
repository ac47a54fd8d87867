// Calls a function of the training's script, which saves a checkpoint.
#include <array>

#include "actions/action.h"
#include "actions/registry.h"

namespace tensortap {
namespace {

class SaveCheckpoint : public Action {
 public:
  explicit SaveCheckpoint(std::string function) : function_(std::move(function)) {}

  ActionReply run(const Finding& finding, ActionContext& context) override {
    if (!context.call_function) {
      throw Error(ErrorCode::kUnsupported, "only the training's own process can save a checkpoint");
    }
    context.call_function(function_, finding);
    return {.detail = "", .is_deferred = true};
  }

 private:
  std::string function_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<SaveCheckpoint>(parameters.get_string("function"));
}

}  // namespace

const ActionDescriptor& save_checkpoint_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{.name = "function",
                          .default_value = "checkpoint",
                          .doc = "name under which the function was given to the session"},
  };
  static const ActionDescriptor descriptor{
      .name = "save_checkpoint",
      .summary = "Calls a function of the script that saves a checkpoint.",
      .doc =
          "Calls the given function at the border of the step in which the rule fires, on the "
          "training thread, before a stop is obeyed. In Python: "
          "`actions.SaveCheckpoint(lambda finding: torch.save(…))`. When it raises, that is "
          "recorded "
          "and the training goes on.",
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
