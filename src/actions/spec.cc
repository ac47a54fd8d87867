#include "actions/spec.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/transfer.h"
#include "rules/parameters.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;

[[noreturn]] void reject(const std::string& why) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "an action is written NAME, NAME(key=value,…) or as a JSON object with a name; {}", why));
}

std::optional<std::string> text_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

ActionSpec from_json(const Json& object) {
  if (!object.is_object()) reject("this is JSON, but no object");
  ActionSpec spec;
  for (const auto& [key, value] : object.items()) {
    const std::optional<std::string> text = text_of(value);
    if (!text) continue;
    if (key == "name") {
      spec.name = *text;
    } else {
      spec.parameters[key] = *text;
    }
  }
  if (spec.name.empty()) reject("the name is missing");
  return spec;
}

Json parse_json(std::string_view text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) reject("this is not whole JSON");
  return parsed;
}

// SageMaker writes its text for a string literal, with a backslash before each quote.
std::string without_escapes(std::string_view text) {
  std::string plain(text);
  if (plain.find("\\\"") == std::string::npos) return plain;
  if (!Json::accept(plain)) {
    std::size_t at = 0;
    while ((at = plain.find("\\\"", at)) != std::string::npos) plain.erase(at++, 1);
  }
  return plain;
}

bool is_shown_whole(std::string_view key) {
  // Everything that is not known to be harmless stays out.
  static constexpr std::string_view kHidden[] = {"url", "server", "endpoint_url", "argv"};
  return std::find(std::begin(kHidden), std::end(kHidden), key) == std::end(kHidden);
}

std::string shown_value(std::string_view key, const std::string& value) {
  if (is_shown_whole(key)) return value;
  if (key != "argv") return redacted_url(value);
  const std::vector<std::string> words = list_of(value);
  if (words.empty()) return "";
  return words.size() == 1 ? words.front() : words.front() + " …";
}

}  // namespace

ActionSpec parse_action_spec(std::string_view text) {
  text = trim(text);
  if (text.empty()) reject("the name is missing");
  if (text.front() == '{' || text.front() == '[')
    return from_json(parse_json(without_escapes(text)));
  const std::size_t at = text.find_first_of("(:");
  ActionSpec spec;
  spec.name = trim(text.substr(0, at));
  if (spec.name.empty()) reject("the name is missing");
  if (at == std::string_view::npos) return spec;
  std::string_view inside = text.substr(at + 1);
  if (text[at] == '(') {
    if (inside.empty() || inside.back() != ')') reject("the closing bracket is missing");
    inside.remove_suffix(1);
  }
  // The same rules as for the parameters of rules; its messages would repeat the values.
  try {
    spec.parameters = parse_rule_spec(fmt::format("x:{}", inside)).parameters;
  } catch (const Error&) {
    reject(fmt::format("the parameters of '{}' are not key=value,key=value", spec.name));
  }
  return spec;
}

std::vector<std::string> split_actions(std::string_view text) {
  text = trim(text);
  if (!text.empty() && (text.front() == '{' || text.front() == '[')) {
    // A list in brackets of what is no JSON is a list too: [stop_training, email(to=a@x.org)].
    const std::string plain = without_escapes(text);
    const Json parsed = Json::parse(plain, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_array()) {
      std::vector<std::string> actions;
      for (const Json& entry : parsed) actions.push_back(text_of(entry).value_or(""));
      return actions;
    }
    if (parsed.is_object()) return {plain};
    if (text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  }
  return split_list(text);
}

void take_actions(RuleSpec& rule) {
  const auto found = rule.parameters.find("actions");
  if (found == rule.parameters.end()) return;
  rule.actions = split_actions(found->second);
  rule.parameters.erase(found);
}

std::vector<std::string> actions_of(const RuleSpec& rule) {
  std::vector<std::string> actions = rule.actions;
  const auto found = rule.parameters.find("stop_training_on_fire");
  const bool is_asked = found != rule.parameters.end() && parse_bool(found->second) == true;
  if (is_asked) actions.emplace_back("stop_training");
  return actions;
}

std::string shown_spec(std::string_view name,
                       const std::map<std::string, std::string>& parameters) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : parameters) {
    parts.push_back(fmt::format("{}={}", key, shown_value(key, value)));
  }
  if (parts.empty()) return std::string(name);
  return fmt::format("{}({})", name, join(parts, ","));
}

std::vector<std::string> list_of(std::string_view value) {
  value = trim(value);
  if (!value.empty() && value.front() == '[') {
    const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_array()) {
      std::vector<std::string> items;
      for (const Json& item : parsed) items.push_back(text_of(item).value_or(""));
      return items;
    }
    if (value.back() == ']') value = value.substr(1, value.size() - 2);
  }
  return split_list(value);
}

}  // namespace tensortap
