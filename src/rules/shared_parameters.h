// Parameters that many built-in rules have in common, and the scope that they say. Used by
// rules/builtin. Thread-safe.
#pragma once

#include <array>
#include <string_view>

#include "rules/parameters.h"
#include "rules/tensor_rule.h"

namespace tensortap {

inline constexpr ParameterDescriptor kWorkerPolicyParameter = {
    "worker_policy", ParameterType::kString, "any",
    "Whose tensors count with several workers: any (each is judged) or first."};
// Of rules that must be told what to look at.
inline constexpr ParameterDescriptor kCollectionNamesParameter = {
    "collection_names", ParameterType::kList, "",
    "Collections to look at, separated by commas; this or tensor_regex must be given."};
inline constexpr ParameterDescriptor kTensorRegexParameter = {
    "tensor_regex", ParameterType::kList, "",
    "Patterns of tensor names to look at, separated by commas."};

WorkerPolicy worker_policy_of(std::string_view rule, const Parameters& parameters);

// collection_names, tensor_regex, worker_policy. Throws Error(kInvalidArgument) when neither of the
// first two is given.
RuleScope asked_scope(std::string_view rule, const Parameters& parameters, bool is_training_only);

// For rules with a documented default of tensor_regex: where that stands and no collection_names
// are given, the collections that are filled by the kind of module are looked at too.
RuleScope typed_scope(std::string_view rule, const Parameters& parameters,
                      std::string_view default_regex, std::vector<std::string> typed_collections);

// A text parameter that has few values. Throws Error(kInvalidArgument) with them; gives the index.
std::size_t choice_of(std::string_view rule, const Parameters& parameters, std::string_view name,
                      std::span<const std::string_view> choices);

// A list parameter of numbers. Throws Error(kInvalidArgument) at what is none.
std::vector<double> numbers_of(std::string_view rule, const Parameters& parameters,
                               std::string_view name);

}  // namespace tensortap
