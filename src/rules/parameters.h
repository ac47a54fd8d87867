// Parameters of rules and actions: declared by a descriptor, given as strings (as SageMaker sends
// them) or typed values, checked against the declaration. Immutable after parsing, thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

enum class ParameterType { kBool, kInt, kFloat, kString, kList };
std::string_view parameter_type_name(ParameterType type);  // "bool", "int", "float", "str", "list"

struct ParameterDescriptor {
  // "BatchSize_*" declares all names that begin so, in any spelling of upper and lower case; their
  // values are texts, kept under the name that was given.
  std::string_view name;
  ParameterType type = ParameterType::kString;
  std::string_view default_value = {};  // as text; "" = unset
  std::string_view doc = {};            // one sentence, with the unit
  double minimum = -1e308;              // for numbers; exclusive bounds by is_minimum_exclusive
  double maximum = 1e308;
  bool is_minimum_exclusive = false;
  bool is_required = false;
};

class Parameters {
 public:
  // Throws Error(kInvalidArgument): an unknown name (lists the valid ones, suggests the nearest), a
  // value that does not parse, one out of range. `owner` ("rule VanishingGradient") goes into the
  // messages. "None" and "" mean unset; a required one must be set.
  Parameters(std::string_view owner, std::span<const ParameterDescriptor> descriptors,
             const std::map<std::string, std::string>& given);

  // The name must be declared. get_* of an unset parameter without default gives the type's zero;
  // is_set tells.
  bool is_set(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  std::int64_t get_int(std::string_view name) const;
  double get_float(std::string_view name) const;
  std::string get_string(std::string_view name) const;
  std::vector<std::string> get_list(std::string_view name) const;
  // Effective values as text, for findings files and reports.
  const std::map<std::string, std::string, std::less<>>& effective() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// "NAME:key=value,key=value" as on the command line -> name and parameters. Commas inside brackets
// do not split; a part without "=" continues the value before it, so that lists need no quoting
// ("collection_names=losses,metrics"). A comparison ("loss > 10") stands for the rule Expression.
struct RuleSpec {
  std::string name;
  std::map<std::string, std::string> parameters;
  std::vector<std::string> actions;  // names of actions; filled by callers, not by parse
};
RuleSpec parse_rule_spec(std::string_view text);

}  // namespace tensortap
