// `tensortap diagnose`: the findings of a run, joined into illnesses.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "cli/run_files.h"
#include "rules/diagnosis.h"
#include "rules/engine.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::size_t kShownTensors = 5;  // of each symptom

struct Findings {
  std::vector<Finding> findings;
  std::size_t rule_count = 0;
  std::size_t blind_count = 0;  // rules that had nothing to look at
  bool is_recorded = false;     // made by the training, not by this command
};

RuleEngine build_engine(std::span<const std::string> specs) {
  RuleEngine engine;
  try {
    for (const std::string& spec : specs) engine.add(parse_rule_spec(spec));
  } catch (const Error& error) {
    throw cli::UsageError(error.what());
  }
  if (!specs.empty()) return engine;
  for (const RuleDescriptor* rule : builtin_rules()) {
    try {
      engine.add({std::string(rule->name), {}, {}});
    } catch (const Error&) {
      // One that has to be told what to look at.
    }
  }
  return engine;
}

Findings evaluate(Trial& trial, RuleEngine& engine) {
  Findings found;
  engine.set_finding_handler(
      [&](std::size_t, const Finding& finding) { found.findings.push_back(finding); });
  engine.check_trial(trial);
  engine.finish();
  for (const RuleReport& report : engine.reports()) {
    if (report.status == RuleStatus::kNoData) ++found.blind_count;
    if (report.status == RuleStatus::kError) {
      cli::write_error(fmt::format("rule {} failed: {}", report.name, cli::escape(report.message)));
    }
  }
  found.rule_count = engine.rule_count();
  return found;
}

std::string tensor_list(const Symptom& symptom) {
  std::vector<std::string> names;
  for (const std::string& tensor : symptom.tensors) {
    if (names.size() == kShownTensors) break;
    names.push_back(cli::escape(tensor));
  }
  const std::size_t hidden = symptom.tensors.size() - names.size();
  return join(names, ", ") + (hidden > 0 ? fmt::format(" and {} more", hidden) : "");
}

std::string steps_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

void print(const Diagnosis& diagnosis, std::size_t number) {
  std::string text = fmt::format("{}. {} ({}, {})\n", number, cli::escape(diagnosis.title),
                                 severity_name(diagnosis.severity),
                                 steps_text(diagnosis.first_step, diagnosis.last_step));
  text += cli::wrap(cli::escape(diagnosis.explanation));
  for (const Symptom& symptom : diagnosis.symptoms) {
    text += fmt::format("   - {}, {}, {}{}{}\n     {}\n", cli::escape(symptom.rule),
                        steps_text(symptom.first_step, symptom.last_step),
                        cli::plural(symptom.finding_count, "finding"),
                        symptom.tensors.empty() ? "" : ": ", tensor_list(symptom),
                        cli::escape(symptom.first.message));
  }
  if (!diagnosis.causes.empty()) {
    text += cli::wrap("Likely causes: " + cli::escape(join(diagnosis.causes, "; ")) + ".");
  }
  text += cli::wrap("Next step: " + cli::escape(diagnosis.next_step));
  cli::write_out(text + "\n");
}

void print_text(const std::vector<Diagnosis>& diagnoses, const Findings& found) {
  const std::string source =
      found.is_recorded ? "found by the rules of the training"
                        : fmt::format("{} evaluated, {} of them had nothing to look at",
                                      cli::plural(found.rule_count, "rule"), found.blind_count);
  if (diagnoses.empty()) {
    cli::write_out(fmt::format("Nothing found ({}).\n", source));
    return;
  }
  cli::write_out(fmt::format(
      "{} out of {} ({}).\n\n",
      diagnoses.size() == 1 ? "1 diagnosis" : fmt::format("{} diagnoses", diagnoses.size()),
      cli::plural(found.findings.size(), "finding"), source));
  for (std::size_t i = 0; i < diagnoses.size(); ++i) print(diagnoses[i], i + 1);
}

int run(const ArgumentValues& arguments) {
  const auto specs = arguments.get_all("rule");
  // Before the run is opened: what the user typed comes first.
  RuleEngine engine = build_engine(specs);
  const std::shared_ptr<Trial> trial = cli::open_run(arguments.get("run"));
  Findings found;
  if (specs.empty() && !arguments.has("all")) {
    found.findings = cli::read_findings(*cli::open_run_storage(arguments.get("run")));
    found.is_recorded = !found.findings.empty();
  }
  if (!found.is_recorded) found = evaluate(*trial, engine);
  cli::warn_of_damage(*trial);
  const std::vector<Diagnosis> diagnoses = diagnose(found.findings, trial->complete_steps());
  if (arguments.has("json")) {
    JsonWriter json(2);
    json.begin_object().field("run", trial->uri()).field("finding_count", found.findings.size());
    json.key("diagnoses").begin_array();
    for (const Diagnosis& diagnosis : diagnoses) json.raw(to_json(diagnosis));
    json.end_array().end_object();
    cli::write_out(json.text() + "\n");
  } else {
    print_text(diagnoses, found);
  }
  return diagnoses.empty() ? kExitOk : kExitFindings;
}

constexpr std::string_view kDoc =
    R"(Joins what the rules of the training found; when they found nothing, or with --all, every
built-in rule that needs no parameters is evaluated over the recorded run first; with --rule, those.
Findings that belong to one illness become one diagnosis, the worst first, each with its signs in
the order in which one causes the next, likely causes and a next step. Exit code: 0 nothing found, 3
diagnoses, 2 bad usage, 1 error.

Examples:
  tensortap diagnose runs/digits
  tensortap diagnose runs/digits --all --json)";

}  // namespace

const CommandDescriptor& diagnose_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "rule",
                         .kind = ArgumentKind::kOption,
                         .value_name = "NAME[:key=value,…]",
                         .doc = "evaluate this rule; repeatable",
                         .is_repeatable = true},
      ArgumentDescriptor{.name = "all",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "evaluate every built-in rule, whatever the training found"},
      ArgumentDescriptor{
          .name = "json", .kind = ArgumentKind::kFlag, .value_name = "", .doc = "as JSON"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "diagnose",
      .summary = "Say what is wrong with a run: findings joined into diagnoses.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
