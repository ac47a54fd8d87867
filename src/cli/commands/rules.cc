// `tensortap rules`: the documentation of the built-in rules, straight from their descriptors.
#include <array>

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

std::vector<ParameterDescriptor> parameters_of(const RuleDescriptor& rule) {
  std::vector<ParameterDescriptor> parameters(rule.parameters.begin(), rule.parameters.end());
  const auto common = common_rule_parameters();
  parameters.insert(parameters.end(), common.begin(), common.end());
  return parameters;
}

std::string default_text(const ParameterDescriptor& parameter) {
  if (parameter.is_required) return "required";
  return parameter.default_value.empty() ? "-" : std::string(parameter.default_value);
}

void append_json(JsonWriter& json, const RuleDescriptor& rule) {
  json.begin_object();
  json.field("name", rule.name).field("summary", rule.summary).field("doc", rule.doc);
  json.field("family", rule_family_name(rule.family)).field("stage", stage_name(rule.stage));
  json.field("why", rule.advice.why).key("causes").begin_array();
  for (const std::string_view cause : rule.advice.causes) json.value(cause);
  json.end_array().field("next_step", rule.advice.next_step);
  json.key("collections").begin_array();
  for (const std::string_view collection : rule.collections) json.value(collection);
  json.end_array();
  json.key("parameters").begin_array();
  for (const ParameterDescriptor& parameter : parameters_of(rule)) {
    json.begin_object();
    json.field("name", parameter.name).field("type", parameter_type_name(parameter.type));
    json.field("default", parameter.default_value)
        .field("required", parameter.is_required)
        .field("doc", parameter.doc);
    json.end_object();
  }
  json.end_array().end_object();
}

void print_summaries(const std::vector<const RuleDescriptor*>& rules) {
  cli::Table table;
  table.add_column("rule");
  table.add_column("finds");
  for (const RuleDescriptor* rule : rules) {
    table.add_row({std::string(rule->name), std::string(rule->summary)});
  }
  cli::write_out(table.text());
  cli::write_out("\n`tensortap rules NAME` explains one and lists its parameters.\n");
}

void print_rule(const RuleDescriptor& rule) {
  cli::write_out(fmt::format("{}: {}\n\n{}", rule.name, rule.summary, cli::wrap(rule.doc)));
  std::string collections;
  for (const std::string_view name : rule.collections) {
    collections += fmt::format("{}{}", collections.empty() ? "" : ", ", name);
  }
  cli::write_out(fmt::format("\n{}\n\nLikely causes:\n", rule.advice.why));
  for (const std::string_view cause : rule.advice.causes) {
    cli::write_out(fmt::format("  - {}\n", cause));
  }
  cli::write_out(fmt::format("\n{}\n", rule.advice.next_step));
  if (!collections.empty())
    cli::write_out(fmt::format("\nNeeds the collections: {}\n", collections));
  cli::Table table;
  table.add_column("parameter");
  table.add_column("type");
  table.add_column("default");
  table.add_column("meaning");
  for (const ParameterDescriptor& parameter : parameters_of(rule)) {
    table.add_row({std::string(parameter.name), std::string(parameter_type_name(parameter.type)),
                   default_text(parameter), std::string(parameter.doc)});
  }
  cli::write_out("\n" + table.text());
  cli::write_out(fmt::format("\nTry: tensortap check RUN --rule {}\n", rule.name));
}

const RuleDescriptor& find_named(const std::string& name) {
  try {
    return find_rule(name);
  } catch (const Error& error) {
    throw cli::UsageError(error.what());
  }
}

int run(const ArgumentValues& arguments) {
  std::vector<const RuleDescriptor*> rules = builtin_rules();
  const bool is_one = arguments.has("name");
  if (is_one) rules = {&find_named(arguments.get("name"))};
  if (!arguments.has("json")) {
    is_one ? print_rule(*rules.front()) : print_summaries(rules);
    return kExitOk;
  }
  JsonWriter json(2);
  json.begin_array();
  for (const RuleDescriptor* rule : rules) append_json(json, *rule);
  json.end_array();
  cli::write_out(json.text() + "\n");
  return kExitOk;
}

constexpr std::string_view kDoc =
    R"(Without NAME all rules, one line each; with NAME what it detects, how, what to do about it, and its
parameters.

Examples:
  tensortap rules
  tensortap rules VanishingGradient
  tensortap rules vanishing_gradient --json)";

}  // namespace

const CommandDescriptor& rules_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{.name = "name", .value_name = "NAME", .doc = "one rule, in any spelling"},
      ArgumentDescriptor{.name = "json",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "as JSON, a list of rules"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "rules",
      .summary = "Explain the built-in rules and their parameters.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
