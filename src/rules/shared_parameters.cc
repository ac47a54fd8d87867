#include "rules/shared_parameters.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {

WorkerPolicy worker_policy_of(std::string_view rule, const Parameters& parameters) {
  static constexpr std::array kPolicies = {WorkerPolicy::kAny, WorkerPolicy::kFirst};
  return parse_worker_policy(rule, parameters.get_string("worker_policy"), kPolicies);
}

RuleScope asked_scope(std::string_view rule, const Parameters& parameters, bool is_training_only) {
  RuleScope scope{.collections = parameters.get_list("collection_names"),
                  .regexes = parameters.get_list("tensor_regex"),
                  .is_training_only = is_training_only,
                  .policy = worker_policy_of(rule, parameters)};
  if (scope.collections.empty() && scope.regexes.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rule {}: collection_names or tensor_regex must say what to look at", rule));
  }
  return scope;
}

RuleScope typed_scope(std::string_view rule, const Parameters& parameters,
                      std::string_view default_regex, std::vector<std::string> typed_collections) {
  RuleScope scope{.collections = parameters.get_list("collection_names"),
                  .regexes = parameters.get_list("tensor_regex"),
                  .policy = worker_policy_of(rule, parameters)};
  if (scope.collections.empty() && parameters.get_string("tensor_regex") == default_regex) {
    scope.collections = std::move(typed_collections);
  }
  return scope;
}

std::size_t choice_of(std::string_view rule, const Parameters& parameters, std::string_view name,
                      std::span<const std::string_view> choices) {
  const std::string given = parameters.get_string(name);
  const auto found = std::find(choices.begin(), choices.end(), given);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::vector<std::string> names(choices.begin(), choices.end());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rule {}: parameter '{}' must be one of {}, not '{}'", rule, name,
                          join(names, ", "), given));
}

std::vector<double> numbers_of(std::string_view rule, const Parameters& parameters,
                               std::string_view name) {
  std::vector<double> numbers;
  for (const std::string& text : parameters.get_list(name)) {
    const std::optional<double> number = parse_double(text);
    if (!number) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("rule {}: parameter '{}' must be numbers separated by commas, not '{}'", rule,
                      name, parameters.get_string(name)));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace tensortap
