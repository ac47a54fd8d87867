// actions/ for Python, and what rules left in a run: descriptors, checks, running them beside a
// training.
#include <chrono>
#include <memory>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "actions/registry.h"
#include "actions/runner.h"
#include "actions/spec.h"
#include "bindings/bindings.h"
#include "session/control.h"
#include "session/rule_status.h"
#include "storage/storage.h"

namespace tensortap::bindings {
namespace {

nb::str str_of(std::string_view view) { return nb::str(view.data(), view.size()); }

constexpr std::chrono::seconds kPatience(10);  // for mails that are under way

// The actions of one rule that judges in a process beside the training.
struct PyActionRunner {
  PyActionRunner(const std::string& run, const std::vector<std::string>& actions, bool has_ended)
      : runner(std::make_unique<ActionRunner>()) {
    runner->add_rule(actions);
    runner->set_context(context_beside(open_storage(run), has_ended));
    runner->set_outcome_handler(
        [this](const ActionOutcome& outcome) { outcomes.push_back(to_json(outcome)); });
  }
  ~PyActionRunner() { close(); }
  PyActionRunner(const PyActionRunner&) = delete;
  PyActionRunner& operator=(const PyActionRunner&) = delete;

  void run(const Finding& finding) {
    const nb::gil_scoped_release release;  // a failure is logged, through Python
    runner->on_finding(0, finding);
  }
  // The outcomes, as JSON.
  std::vector<std::string> close() {
    const nb::gil_scoped_release release;
    runner->close(kPatience);
    return outcomes;
  }

  std::vector<std::string> outcomes;     // of the runner's thread until it is closed
  std::unique_ptr<ActionRunner> runner;  // ends first
};

nb::list action_list() {
  nb::list rows;
  for (const ActionDescriptor* action : builtin_actions()) {
    nb::dict row;
    row["name"] = str_of(action->name);
    row["summary"] = str_of(action->summary);
    row["doc"] = str_of(action->doc);
    nb::list parameters = parameter_list(action->parameters);
    parameters.extend(parameter_list(common_action_parameters()));
    row["parameters"] = parameters;
    rows.append(row);
  }
  return rows;
}

nb::list rule_status_list(const std::string& uri) {
  nb::list rows;
  for (const RuleStatusFile& rule : read_rule_statuses(*open_storage(uri))) {
    nb::dict row;
    row["name"] = rule.name;
    row["worker"] = rule.worker;
    row["status"] = rule.status;
    row["message"] = rule.message;
    row["finding_count"] = rule.finding_count;
    row["updated_ns"] = rule.updated_ns;
    row["checked_steps"] = rule.coverage.checked_steps;
    row["matched_tensors"] = rule.coverage.matched_tensors;
    row["first_step"] = rule.has_first_finding ? nb::cast(rule.first_step) : nb::none();
    row["first_message"] = rule.first_message;
    row["actions"] = rule.actions;
    row["last_action"] = rule.last_action;
    rows.append(row);
  }
  return rows;
}

void bind_runner(nb::module_& module) {
  nb::class_<PyActionRunner>(module, "ActionRunner",
                             "Runs the actions of a rule that judges beside a training.")
      .def(nb::init<const std::string&, const std::vector<std::string>&, bool>(), nb::arg("run"),
           nb::arg("actions"), nb::arg("has_ended"))
      .def("run", &PyActionRunner::run, nb::arg("finding"),
           "Unless they ran within their cool-down. Does not wait for slow ones.")
      .def("close", &PyActionRunner::close,
           "Waits up to 10 s for those under way; gives the outcomes as JSON texts.");
}

}  // namespace

nb::list parameter_list(std::span<const ParameterDescriptor> parameters) {
  nb::list rows;
  for (const ParameterDescriptor& parameter : parameters) {
    nb::dict row;
    row["name"] = str_of(parameter.name);
    row["type"] = str_of(parameter_type_name(parameter.type));
    row["default"] = str_of(parameter.default_value);
    row["required"] = parameter.is_required;
    row["doc"] = str_of(parameter.doc);
    rows.append(row);
  }
  return rows;
}

void bind_actions(nb::module_& module) {
  module.def("action_descriptors", &action_list,
             nb::sig("def action_descriptors() -> list[dict[str, typing.Any]]"));
  module.def(
      "check_action",
      [](const std::string& spec) {
        const CreatedAction created = create_action(spec);
        return std::pair(std::string(created.descriptor->name), created.shown);
      },
      nb::arg("text"),
      "Its name, and its text without secrets; NotFoundError or InvalidArgumentError.");
  module.def(
      "split_actions", [](const std::string& text) { return split_actions(text); }, nb::arg("text"),
      "\"a,b(key=value,key=value)\" or a JSON list -> one text an action.");
  module.def("rule_statuses", &rule_status_list, nb::arg("run"),
             nb::sig("def rule_statuses(run: str) -> list[dict[str, typing.Any]]"),
             "What rules/*.json of a run say.");
  bind_runner(module);
}

}  // namespace tensortap::bindings
