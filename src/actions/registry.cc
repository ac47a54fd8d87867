#include "actions/registry.h"

#include <array>
#include <cctype>
#include <map>

#include <fmt/core.h>

#include "actions/spec.h"
#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

// "StopTraining", "stop_training" and "stop-training" are one name: SageMaker writes the first.
std::string spelling_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return key;
}

// SageMaker names the job to stop and the address to write to in its own words. The job is the
// training at hand: the prefix is kept in what is shown, and nothing is looked up with it.
void take_sagemaker_words(std::string_view name, std::map<std::string, std::string>& parameters) {
  if (name == "stop_training") parameters.erase("training_job_prefix");
  const auto endpoint = parameters.find("endpoint");
  if (endpoint == parameters.end()) return;
  if (name == "email" || name == "sms") {
    parameters.emplace(name == "email" ? "to" : "phone", endpoint->second);
    parameters.erase(endpoint);
  }
}

}  // namespace

std::span<const ParameterDescriptor> common_action_parameters() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{
          .name = "cooldown",
          .type = ParameterType::kInt,
          .default_value = "100",
          .doc =
              "steps of silence after it ran, so that a rule that fires at every step acts once; "
              "0: act at every finding",
          .minimum = 0},
      ParameterDescriptor{.name = "retries",
                          .type = ParameterType::kInt,
                          .default_value = "3",
                          .doc = "further tries of something slow that failed and may yet succeed",
                          .minimum = 0,
                          .maximum = 20},
  };
  return kParameters;
}

const ActionDescriptor& find_action(std::string_view name) {
  const std::string key = spelling_key(name);
  std::vector<std::string> names;
  for (const ActionDescriptor* descriptor : builtin_actions()) {
    if (spelling_key(descriptor->name) == key) return *descriptor;
    names.emplace_back(descriptor->name);
  }
  throw Error(ErrorCode::kNotFound, fmt::format("unknown action '{}'{}; the actions are: {}", name,
                                                did_you_mean(name, names), join(names, ", ")));
}

CreatedAction create_action(std::string_view text) {
  ActionSpec spec = parse_action_spec(text);
  const ActionDescriptor& descriptor = find_action(spec.name);
  const std::string shown = shown_spec(descriptor.name, spec.parameters);
  take_sagemaker_words(descriptor.name, spec.parameters);
  std::vector<ParameterDescriptor> declared(descriptor.parameters.begin(),
                                            descriptor.parameters.end());
  const auto common = common_action_parameters();
  declared.insert(declared.end(), common.begin(), common.end());
  const Parameters parameters(fmt::format("action {}", descriptor.name), declared, spec.parameters);
  return {&descriptor, shown, parameters.get_int("cooldown"), parameters.get_int("retries"),
          descriptor.create(parameters)};
}

}  // namespace tensortap
