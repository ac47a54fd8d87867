#include "session/rule_status.h"

#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "rules/engine.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSuffix = ".json";

Json parse_object(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : Json::object();
}

const Json& member(const Json& object, const char* key) {
  static const Json kNothing = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNothing;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

template <class Number>
Number number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<Number>() : Number{0};
}

Coverage read_coverage(const Json& object) {
  const auto count = [&](const char* key) { return number_of<std::uint64_t>(object, key); };
  return {count("checked_steps"), count("matched_tensors"), count("checked_tensor_steps"),
          count("skipped_steps"), count("valueless_tensor_steps")};
}

// Of the last whole line that can be read.
std::string last_action(const std::string& lines) {
  std::size_t end = lines.rfind('\n');
  while (end != std::string::npos && end > 0) {
    const std::size_t before = lines.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    const Json line = parse_object(lines.substr(begin, end - begin));
    if (line.contains("action")) {
      const std::string detail = text_of(line, "detail");
      return fmt::format("{} {} at step {}{}{}", text_of(line, "action"), text_of(line, "result"),
                         number_of<std::int64_t>(line, "step"), detail.empty() ? "" : ": ", detail);
    }
    end = before;
  }
  return "";
}

RuleStatusFile read_one(const Json& status) {
  RuleStatusFile rule;
  rule.name = text_of(status, "name");
  rule.worker = text_of(status, "worker");
  rule.status = text_of(status, "status");
  rule.finding_count = number_of<std::uint64_t>(status, "finding_count");
  rule.updated_ns = number_of<std::int64_t>(status, "updated_ns");
  const Json& report = member(status, "report");
  rule.message = text_of(report, "message");
  rule.coverage = read_coverage(member(report, "coverage"));
  const Json& first = member(report, "first_finding");
  rule.has_first_finding = !first.empty();
  rule.first_step = number_of<std::int64_t>(first, "step");
  rule.first_message = text_of(first, "message");
  const auto actions = status.find("actions");
  if (actions != status.end() && actions->is_array()) {
    for (const Json& action : *actions) {
      if (action.is_string()) rule.actions.push_back(action.get<std::string>());
    }
  }
  return rule;
}

// A rule whose status cannot be read must not pass for one that found nothing.
RuleStatusFile damaged(const std::string& stem) {
  RuleStatusFile rule;
  rule.name = stem.substr(stem.rfind('/') + 1);
  rule.worker = "worker_0";
  rule.status = rule_status_name(RuleStatus::kError);
  rule.message = fmt::format("{}{} is damaged and cannot be read", stem, kSuffix);
  return rule;
}

}  // namespace

std::vector<RuleStatusFile> read_rule_statuses(const Storage& storage) {
  std::vector<RuleStatusFile> rules;
  for (const StorageEntry& entry : storage.list("rules/")) {
    if (!entry.name.ends_with(kSuffix)) continue;
    const std::optional<std::string> text = storage.get(entry.name);
    if (!text) continue;
    const Json status = parse_object(*text);
    const std::string stem = entry.name.substr(0, entry.name.size() - kSuffix.size());
    const bool is_whole = !text_of(status, "name").empty() && !text_of(status, "status").empty();
    rules.push_back(is_whole ? read_one(status) : damaged(stem));
    rules.back().last_action = last_action(storage.get(stem + ".actions.jsonl").value_or(""));
  }
  return rules;
}

std::string to_json(const RuleStatusFile& rule) {
  JsonWriter json;
  json.begin_object()
      .field("name", rule.name)
      .field("worker", rule.worker)
      .field("status", rule.status)
      .field("message", rule.message)
      .field("finding_count", rule.finding_count)
      .field("updated_ns", rule.updated_ns)
      .field("checked_steps", rule.coverage.checked_steps)
      .field("matched_tensors", rule.coverage.matched_tensors);
  json.key("first_finding");
  if (rule.has_first_finding) {
    json.begin_object().field("step", rule.first_step).field("message", rule.first_message);
    json.end_object();
  } else {
    json.null();
  }
  json.key("actions").begin_array();
  for (const std::string& action : rule.actions) json.value(action);
  json.end_array().field("last_action", rule.last_action).end_object();
  return json.text();
}

}  // namespace tensortap
