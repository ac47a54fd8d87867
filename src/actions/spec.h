// An action as text, in the spellings that people, programs and SageMaker use. Pure functions,
// thread-safe.
//
//   stop_training                                 a name, in any spelling: StopTraining
//   email(to=ops@x.org,server=smtp://mx:25)       parameters; brackets keep commas together
//   email:to=ops@x.org,server=smtp://mx:25        the same
//   {"name": "email", "to": ["ops@x.org"]}        JSON: values of any kind, lists as JSON lists
//   {"name": "sms", "endpoint": "+15551234567"}   SageMaker's: endpoint and training_job_prefix
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rules/parameters.h"

namespace tensortap {

struct ActionSpec {
  std::string name;  // as given
  std::map<std::string, std::string> parameters;
};

// Throws Error(kInvalidArgument); the message does not repeat values, which may be secret.
ActionSpec parse_action_spec(std::string_view text);

// "stop_training,email(to=a@x.org)" or a JSON list -> one text an action.
std::vector<std::string> split_actions(std::string_view text);

// Moves the parameter `actions` of a rule's text to where it belongs.
void take_actions(RuleSpec& rule);

// A rule's actions, and stop_training where its parameter stop_training_on_fire, as SageMaker has
// it, asks for that.
std::vector<std::string> actions_of(const RuleSpec& rule);

// What may be stored and shown: addresses of webhooks lose their path, commands their arguments.
std::string shown_spec(std::string_view name, const std::map<std::string, std::string>& parameters);

// A parameter that is a list: "a,b" or ["a", "b,c"].
std::vector<std::string> list_of(std::string_view value);

}  // namespace tensortap
