// Records in full detail for some steps.
#include <array>

#include <fmt/core.h>

#include "actions/action.h"
#include "actions/registry.h"
#include "actions/spec.h"

namespace tensortap {
namespace {

class CaptureMore : public Action {
 public:
  explicit CaptureMore(DetailWish wish) : wish_(std::move(wish)) {}

  ActionReply run(const Finding& finding, ActionContext& context) override {
    if (!context.raise_detail) return {"nothing to record: no training is running"};
    context.raise_detail(finding, wish_);
    return {fmt::format("records everything for {} steps", wish_.step_count)};
  }

 private:
  DetailWish wish_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<CaptureMore>(DetailWish{list_of(parameters.get_string("collections")),
                                                  parameters.get_int("steps"),
                                                  parameters.get_bool("raw")});
}

}  // namespace

const ActionDescriptor& capture_more_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{.name = "steps",
                          .type = ParameterType::kInt,
                          .default_value = "10",
                          .doc = "steps, from the next one on, that are recorded in full",
                          .minimum = 1,
                          .maximum = 1e6},
      ParameterDescriptor{.name = "collections",
                          .type = ParameterType::kList,
                          .doc = "which collections, saved until now or not ('all': every tensor); "
                                 "unset: those that are being saved"},
      ParameterDescriptor{.name = "raw",
                          .type = ParameterType::kBool,
                          .default_value = "false",
                          .doc = "whether raw values are kept too"},
  };
  static const ActionDescriptor descriptor{
      .name = "capture_more",
      .summary = "Records in full detail for the next steps.",
      .doc =
          "For the next `steps` steps the chosen collections are recorded at every step, with all "
          "statistics and histograms, and with raw values when `raw` is set, whatever their save "
          "configuration says; afterwards everything is as before. A second request while one runs "
          "replaces it. From another process the request goes through the run's control/.",
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
