// rules/ for Python: findings, reports, descriptors, checking a recorded run.
#include <map>

#include <fmt/core.h>
#include <nanobind/operators.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rule.h"
#include "rules/diagnosis.h"
#include "rules/engine.h"
#include "rules/registry.h"

namespace tensortap::bindings {
namespace {

nb::str text(std::string_view view) { return nb::str(view.data(), view.size()); }

nb::dict finding_dict(const Finding& self) {
  nb::dict values;
  values["rule"] = self.rule;
  values["tensor"] = self.tensor;
  values["worker"] = self.worker;
  values["step"] = self.step;
  values["mode"] = static_cast<int>(self.mode);
  values["mode_step"] = self.mode_step;
  values["statistic"] = self.statistic;
  values["observed"] = self.observed;
  values["threshold"] = self.threshold;
  values["severity"] = text(severity_name(self.severity));
  values["message"] = self.message;
  return values;
}

Severity to_severity(std::string_view name) {
  for (const Severity one : {Severity::kInfo, Severity::kWarning, Severity::kCritical}) {
    if (severity_name(one) == name) return one;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a severity is info, warning or critical, not '{}'", name));
}

Finding make_finding(std::string message, std::string rule, std::string tensor, std::string worker,
                     std::int64_t step, int mode, std::int64_t mode_step, std::string statistic,
                     double observed, double threshold, const std::string& severity) {
  return {
      std::move(rule),   std::move(tensor),    std::move(worker), step,      to_mode(mode),
      mode_step,         std::move(statistic), observed,          threshold, to_severity(severity),
      std::move(message)};
}

Finding finding_from_dict(const nb::dict& state) {
  const auto get = [&](const char* key) { return nb::object(state[key]); };
  return make_finding(nb::cast<std::string>(get("message")), nb::cast<std::string>(get("rule")),
                      nb::cast<std::string>(get("tensor")), nb::cast<std::string>(get("worker")),
                      nb::cast<std::int64_t>(get("step")), nb::cast<int>(get("mode")),
                      nb::cast<std::int64_t>(get("mode_step")),
                      nb::cast<std::string>(get("statistic")), nb::cast<double>(get("observed")),
                      nb::cast<double>(get("threshold")), nb::cast<std::string>(get("severity")));
}

void bind_finding(nb::module_& module) {
  nb::class_<Finding>(module, "Finding", "What a rule said. `mode` is a number.")
      .def(
          "__init__",
          [](Finding* self, std::string message, std::string rule, std::string tensor,
             std::string worker, std::int64_t step, int mode, std::int64_t mode_step,
             std::string statistic, double observed, double threshold,
             const std::string& severity) {
            new (self) Finding(make_finding(std::move(message), std::move(rule), std::move(tensor),
                                            std::move(worker), step, mode, mode_step,
                                            std::move(statistic), observed, threshold, severity));
          },
          nb::kw_only(), nb::arg("message"), nb::arg("rule") = "", nb::arg("tensor") = "",
          nb::arg("worker") = "", nb::arg("step") = 0, nb::arg("mode") = 4,
          nb::arg("mode_step") = 0, nb::arg("statistic") = "", nb::arg("observed") = 0.0,
          nb::arg("threshold") = 0.0, nb::arg("severity") = "warning")
      .def_rw("rule", &Finding::rule)
      .def_rw("tensor", &Finding::tensor)
      .def_rw("worker", &Finding::worker)
      .def_rw("step", &Finding::step)
      .def_prop_rw(
          "mode", [](const Finding& self) { return static_cast<int>(self.mode); },
          [](Finding& self, int mode) { self.mode = to_mode(mode); })
      .def_rw("mode_step", &Finding::mode_step)
      .def_rw("statistic", &Finding::statistic)
      .def_rw("observed", &Finding::observed)
      .def_rw("threshold", &Finding::threshold)
      .def_prop_rw(
          "severity", [](const Finding& self) { return std::string(severity_name(self.severity)); },
          [](Finding& self, const std::string& name) { self.severity = to_severity(name); },
          "\"info\", \"warning\" or \"critical\".")
      .def_rw("message", &Finding::message)
      .def("to_json", [](const Finding& self) { return to_json(self); })
      .def("to_dict", &finding_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"))
      .def("__getstate__", &finding_dict,
           nb::sig("def __getstate__(self) -> dict[str, typing.Any]"))
      .def(
          "__setstate__",
          [](Finding& self, const nb::dict& state) {
            new (&self) Finding(finding_from_dict(state));
          },
          nb::sig("def __setstate__(self, state: dict[str, typing.Any], /) -> None"))
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](const Finding& self) {
        return fmt::format("Finding(rule={}, step={}, tensor={}: {})", self.rule, self.step,
                           self.tensor.empty() ? "-" : self.tensor, self.message);
      });
}

void bind_report(nb::module_& module) {
  nb::class_<RuleReport>(module, "RuleReport", "How a rule fared over the steps it saw.")
      .def_ro("name", &RuleReport::name)
      .def_prop_ro(
          "status",
          [](const RuleReport& self) { return std::string(rule_status_name(self.status)); },
          "\"InProgress\", \"NoIssuesFound\", \"IssuesFound\", \"NoData\", \"Error\" or "
          "\"Stopped\".")
      .def_ro("finding_count", &RuleReport::finding_count)
      .def_ro("first_finding", &RuleReport::first_finding)
      .def_ro("message", &RuleReport::message, "The error, or what was not matched.")
      .def_prop_ro("parameters",
                   [](const RuleReport& self) {
                     return std::map<std::string, std::string>(self.parameters.begin(),
                                                               self.parameters.end());
                   })
      .def_prop_ro("checked_steps",
                   [](const RuleReport& self) { return self.coverage.checked_steps; })
      .def_prop_ro("matched_tensors",
                   [](const RuleReport& self) { return self.coverage.matched_tensors; })
      .def_prop_ro("checked_tensor_steps",
                   [](const RuleReport& self) { return self.coverage.checked_tensor_steps; })
      .def_prop_ro("skipped_steps",
                   [](const RuleReport& self) { return self.coverage.skipped_steps; })
      .def("to_json", [](const RuleReport& self) { return to_json(self); })
      .def("__repr__", [](const RuleReport& self) {
        return fmt::format("RuleReport({}: {}, {} findings)", self.name,
                           rule_status_name(self.status), self.finding_count);
      });
}

nb::list rule_list() {
  nb::list rows;
  for (const RuleDescriptor* rule : builtin_rules()) {
    nb::dict row;
    row["name"] = text(rule->name);
    row["summary"] = text(rule->summary);
    row["doc"] = text(rule->doc);
    row["family"] = text(rule_family_name(rule->family));
    row["stage"] = text(stage_name(rule->stage));
    row["why"] = text(rule->advice.why);
    nb::list causes;
    for (const std::string_view cause : rule->advice.causes) causes.append(text(cause));
    row["causes"] = causes;
    row["next_step"] = text(rule->advice.next_step);
    nb::list parameters = parameter_list(rule->parameters);
    parameters.extend(parameter_list(common_rule_parameters()));
    row["parameters"] = parameters;
    nb::list collections;
    for (const std::string_view collection : rule->collections)
      collections.append(text(collection));
    row["collections"] = collections;
    rows.append(row);
  }
  return rows;
}

// The engine is asked, so that what it accepts and what Python accepts are one thing.
std::pair<std::string, std::map<std::string, std::string>> validate_rule(
    const std::string& name, const std::map<std::string, std::string>& parameters) {
  RuleEngine engine;
  engine.add(RuleSpec{name, parameters, {}});
  const RuleReport report = engine.reports().front();
  return {report.name, {report.parameters.begin(), report.parameters.end()}};
}

// Keeps the GIL, since a trial is not thread-safe; following a run, which may take hours, gets a
// trial of its own and leaves the GIL free between steps.
std::pair<std::vector<Finding>, std::vector<RuleReport>> check_trial(
    Trial& trial, const std::vector<RuleTuple>& rules, std::optional<std::int64_t> first_step,
    std::optional<std::int64_t> last_step, bool follow,
    const std::optional<nb::callable>& on_finding,
    const std::vector<std::pair<std::string, nb::callable>>& python_rules) {
  RuleEngine engine;
  for (const RuleSpec& spec : to_rule_specs(rules)) engine.add(spec);
  for (const auto& [name, callable] : python_rules) {
    engine.add(name, make_python_rule(name, callable));
  }
  std::vector<Finding> findings;
  std::optional<nb::python_error> raised;
  engine.set_finding_handler([&](std::size_t, const Finding& finding) {
    findings.push_back(finding);
    if (!on_finding || raised) return;
    const nb::gil_scoped_acquire acquire;
    try {
      (*on_finding)(finding);
    } catch (nb::python_error& error) {
      raised.emplace(std::move(error));
    }
  });
  {
    const std::shared_ptr<Trial> own = follow ? Trial::open(trial.uri()) : nullptr;
    std::optional<nb::gil_scoped_release> release;
    if (follow) release.emplace();
    engine.check_trial(own ? *own : trial, first_step, last_step, follow, [&] {
      const nb::gil_scoped_acquire acquire;
      if (!raised && PyErr_CheckSignals() != 0) raised.emplace();
      return raised.has_value();
    });
  }
  if (raised) throw nb::python_error(std::move(*raised));
  engine.finish();
  return {std::move(findings), engine.reports()};
}

}  // namespace

std::vector<RuleSpec> to_rule_specs(const std::vector<RuleTuple>& rules) {
  std::vector<RuleSpec> specs;
  specs.reserve(rules.size());
  for (const auto& [name, parameters, actions] : rules)
    specs.push_back({name, parameters, actions});
  return specs;
}

void bind_rules(nb::module_& module) {
  bind_finding(module);
  bind_report(module);
  module.def("rule_descriptors", &rule_list,
             nb::sig("def rule_descriptors() -> list[dict[str, typing.Any]]"),
             "name, summary, doc, family, stage, why, causes, next_step, collections, parameters "
             "(name, type, default, required, doc).");
  module.def(
      "parse_rule_spec",
      [](const std::string& spec_text) {
        RuleSpec spec = parse_rule_spec(spec_text);
        return std::pair(std::move(spec.name), std::move(spec.parameters));
      },
      nb::arg("text"), "\"NAME:key=value,key=value\".");
  module.def(
      "rule_name", [](const std::string& name) { return text(find_rule(name).name); },
      nb::arg("name"), nb::sig("def rule_name(name: str) -> str"),
      "The registered spelling; NotFoundError, listing the rules there are.");
  module.def(
      "validate_rule", &validate_rule, nb::arg("name"), nb::arg("parameters"),
      "The effective parameters; NotFoundError or InvalidArgumentError, listing the valid ones.");
  module.def(
      "diagnose",
      [](const std::vector<Finding>& findings, const std::vector<std::int64_t>& saved_steps) {
        std::vector<std::string> diagnoses;
        for (const Diagnosis& one : diagnose(findings, saved_steps)) {
          diagnoses.push_back(to_json(one));
        }
        return diagnoses;
      },
      nb::arg("findings"), nb::arg("saved_steps"), "JSON objects, the worst first.");
  module.def("check_trial", &check_trial, nb::arg("trial"), nb::arg("rules"),
             nb::arg("first_step").none() = nb::none(), nb::arg("last_step").none() = nb::none(),
             nb::arg("follow") = false, nb::arg("on_finding").none() = nb::none(),
             nb::arg("python_rules") = std::vector<std::pair<std::string, nb::callable>>{},
             nb::sig("def check_trial(trial: Trial, rules: collections.abc.Sequence[RuleSpec], "
                     "first_step: int | None = None, last_step: int | None = None, follow: bool = "
                     "False, on_finding: collections.abc.Callable[[Finding], None] | None = None, "
                     "python_rules: collections.abc.Sequence[tuple[str, "
                     "collections.abc.Callable[[int, int, int], typing.Any]]] = ()) "
                     "-> tuple[list[Finding], list[RuleReport]]"),
             "`python_rules`: name and callable, as Session.add_rule takes them.");
}

}  // namespace tensortap::bindings
