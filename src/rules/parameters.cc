#include "rules/parameters.h"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

std::string_view kind_of(ParameterType type) {
  switch (type) {
    case ParameterType::kBool:
      return "true or false";
    case ParameterType::kInt:
      return "a whole number";
    case ParameterType::kFloat:
      return "a number";
    default:
      return "text";
  }
}

bool is_unset(std::string_view value) { return value.empty() || value == "None"; }

[[noreturn]] void reject(std::string_view owner, const ParameterDescriptor& descriptor,
                         std::string_view must, std::string_view value) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: parameter '{}' must be {}, not '{}'",
                                                       owner, descriptor.name, must, value));
}

void check_range(std::string_view owner, const ParameterDescriptor& descriptor, double number,
                 std::string_view value) {
  const bool is_high_enough =
      descriptor.is_minimum_exclusive ? number > descriptor.minimum : number >= descriptor.minimum;
  if (!is_high_enough) {
    const std::string_view relation = descriptor.is_minimum_exclusive ? "greater than" : "at least";
    reject(owner, descriptor, fmt::format("{} {}", relation, descriptor.minimum), value);
  }
  if (!(number <= descriptor.maximum)) {
    reject(owner, descriptor, fmt::format("at most {}", descriptor.maximum), value);
  }
}

// The text that is kept: one spelling a value, so that reports of equal parameters are equal.
std::string checked(std::string_view owner, const ParameterDescriptor& descriptor,
                    std::string_view value) {
  switch (descriptor.type) {
    case ParameterType::kBool:
      if (const auto truth = parse_bool(value)) return *truth ? "true" : "false";
      break;
    case ParameterType::kInt:
      if (const auto number = parse_int(value)) {
        check_range(owner, descriptor, static_cast<double>(*number), value);
        return std::to_string(*number);
      }
      break;
    case ParameterType::kFloat:
      if (const auto number = parse_double(value)) {
        check_range(owner, descriptor, *number, value);
        return std::string(value);
      }
      break;
    default:
      return std::string(value);
  }
  reject(owner, descriptor, kind_of(descriptor.type), value);
}

[[noreturn]] void reject_name(std::string_view owner,
                              std::span<const ParameterDescriptor> descriptors,
                              std::string_view name) {
  std::vector<std::string> valid;
  for (const ParameterDescriptor& descriptor : descriptors) valid.emplace_back(descriptor.name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} has no parameter '{}'{}; it has: {}", owner, name,
                          did_you_mean(name, valid), join(valid, ", ")));
}

bool is_family(const ParameterDescriptor& descriptor) {
  return !descriptor.name.empty() && descriptor.name.back() == '*';
}

bool declares(const ParameterDescriptor& descriptor, std::string_view name) {
  if (!is_family(descriptor)) return descriptor.name == name;
  const std::string_view prefix = descriptor.name.substr(0, descriptor.name.size() - 1);
  return name.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), name.begin(),
                                                   [](unsigned char a, unsigned char b) {
                                                     return std::tolower(a) == std::tolower(b);
                                                   });
}

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

}  // namespace

std::string_view parameter_type_name(ParameterType type) {
  switch (type) {
    case ParameterType::kBool:
      return "bool";
    case ParameterType::kInt:
      return "int";
    case ParameterType::kFloat:
      return "float";
    case ParameterType::kString:
      return "str";
    case ParameterType::kList:
      return "list";
  }
  return "";
}

Parameters::Parameters(std::string_view owner, std::span<const ParameterDescriptor> descriptors,
                       const std::map<std::string, std::string>& given) {
  for (const auto& [name, value] : given) {
    const bool is_declared =
        std::any_of(descriptors.begin(), descriptors.end(),
                    [&name = name](const ParameterDescriptor& d) { return declares(d, name); });
    if (!is_declared) reject_name(owner, descriptors, name);
  }
  for (const ParameterDescriptor& descriptor : descriptors) {
    if (is_family(descriptor)) {
      for (const auto& [name, value] : given) {
        if (declares(descriptor, name)) values_.emplace(name, trim(value));
      }
      continue;
    }
    const auto found = given.find(std::string(descriptor.name));
    std::string_view value = found != given.end() ? trim(found->second) : std::string_view();
    if (is_unset(value)) value = descriptor.default_value;
    if (is_unset(value) && descriptor.is_required) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: parameter '{}' is required: {}",
                                                           owner, descriptor.name, descriptor.doc));
    }
    if (is_unset(value)) continue;
    values_.emplace(descriptor.name, checked(owner, descriptor, value));
  }
}

bool Parameters::is_set(std::string_view name) const { return values_.find(name) != values_.end(); }

bool Parameters::get_bool(std::string_view name) const {
  return parse_bool(get_string(name)).value_or(false);
}

std::int64_t Parameters::get_int(std::string_view name) const {
  return parse_int(get_string(name)).value_or(0);
}

double Parameters::get_float(std::string_view name) const {
  return parse_double(get_string(name)).value_or(0.0);
}

std::string Parameters::get_string(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() ? found->second : std::string();
}

std::vector<std::string> Parameters::get_list(std::string_view name) const {
  return split_list(get_string(name));
}

RuleSpec parse_rule_spec(std::string_view text) {
  const std::size_t colon = text.find(':');
  RuleSpec spec;
  if (text.find_first_of("<>=!") < colon) {  // no name has these
    spec.name = "Expression";
    spec.parameters["expression"] = trim(text);
    return spec;
  }
  spec.name = trim(text.substr(0, colon));
  const auto reject_spec = [&](std::string_view why) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a rule is written NAME or NAME:key=value,key=value; {} in '{}'", why, text));
  };
  if (spec.name.empty()) reject_spec("the name is missing");
  if (colon == std::string_view::npos) return spec;
  std::string* open_value = nullptr;
  for (const std::string& part : split_list(text.substr(colon + 1))) {
    const std::size_t equals = part.find('=');
    const std::string key(trim(std::string_view(part).substr(0, equals)));
    if (equals != std::string::npos && is_identifier(key)) {
      const auto [entry, is_new] =
          spec.parameters.emplace(key, trim(std::string_view(part).substr(equals + 1)));
      if (!is_new) reject_spec(fmt::format("'{}' is given twice", key));
      open_value = &entry->second;
    } else if (open_value != nullptr) {
      *open_value += "," + part;
    } else {
      reject_spec(fmt::format("'{}' has no '='", part));
    }
  }
  return spec;
}

}  // namespace tensortap
