// session/ for Python: what a framework hook drives. session_record.cc has the calls that record.
#include "bindings/session.h"

#include <fmt/core.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rule.h"

namespace tensortap::bindings {
namespace {

// Stays on a user's model, so it must not keep the run open.
struct PyGate {
  std::weak_ptr<Session> session;

  // The GIL stays: an idle step hands nothing over.
  bool pass(bool driver) const noexcept {
    const std::shared_ptr<Session> alive = session.lock();
    if (alive == nullptr) return true;
    // A request from outside wants a step border that the hook sees.
    return !alive->has_request() && alive->recorder().begin_idle_step(driver);
  }
};

Backpressure to_backpressure(const std::string& name) {
  if (name == "block") return Backpressure::kBlock;
  if (name == "drop") return Backpressure::kDrop;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("backpressure must be \"block\" or \"drop\", not \"{}\"", name));
}

void create_session(PySession* self, const std::string& out_dir, const PyCollectionSet& collections,
                    const std::string& worker, const std::string& framework, bool resume,
                    bool dry_run, const std::optional<SaveConfig>& save_config,
                    const std::optional<ReductionConfig>& reduction_config,
                    const std::vector<std::string>& include_collections, bool save_all,
                    std::size_t compute_threads, std::size_t queue_bytes,
                    const std::string& backpressure, const std::string& configuration_json,
                    const std::vector<RuleTuple>& rules, std::size_t live_budget_bytes,
                    std::optional<std::int64_t> system_interval_ms) {
  SessionOptions options;
  RecorderOptions& recorder = options.recorder;
  recorder.out_dir = out_dir;
  recorder.worker = worker;
  recorder.framework = framework;
  recorder.resume = resume;
  recorder.dry_run = dry_run;
  if (save_config) recorder.save_config = *save_config;
  if (reduction_config) recorder.reduction_config = *reduction_config;
  recorder.include_collections = include_collections;
  recorder.save_all = save_all;
  recorder.compute_threads = compute_threads;
  recorder.writer.queue_size_bytes = queue_bytes;
  recorder.writer.backpressure = to_backpressure(backpressure);
  recorder.configuration_json = configuration_json;
  options.rules = to_rule_specs(rules);
  options.live_budget_bytes = live_budget_bytes;
  if (system_interval_ms) options.system_metrics.emplace().interval_ms = *system_interval_ms;

  if (collections.home->recorder != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "these collections belong to another session");
  }
  std::shared_ptr<Session> session;
  {
    // A copy: when opening fails, the caller's set is as it was.
    CollectionSet copy = copy_collections(collections.home->set);
    const nb::gil_scoped_release release;
    session = std::make_shared<Session>(std::move(options), std::move(copy));
  }
  // From here on the set and the collections handed out of it speak for the recorder's.
  collections.home->recorder = &session->recorder();
  collections.home->session = session;
  collections.home->set = {};
  new (self) PySession{std::move(session), collections, out_dir};
}

nb::dict counters(const PySession& self) {
  const TraceWriterCounters counters = self.recorder().counters();
  nb::dict values;
  values["written_steps"] = counters.written_steps;
  values["dropped_steps"] = counters.dropped_steps;
  values["written_bytes"] = counters.written_bytes;
  values["last_error"] = counters.last_error;
  return values;
}

std::string tensor_name(const PySession& self, TensorId id) {
  const std::vector<TensorInfo>& tensors = self.recorder().dictionary().tensors;
  if (id < tensors.size()) return tensors[id].name;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no tensor has the id {}", id));
}

void add_rule(const PySession& self, const std::string& name, nb::callable callable,
              const std::vector<std::string>& actions) {
  self.session->live_trial();  // which the rule will ask, from the first step on
  self.session->add_rule(name, make_python_rule(name, std::move(callable)), actions);
}

void bind_setup(nb::class_<PySession>& type) {
  type.def("__init__", &create_session, nb::arg("out_dir"), nb::kw_only(), nb::arg("collections"),
           nb::arg("worker") = "worker_0", nb::arg("framework") = "", nb::arg("resume") = false,
           nb::arg("dry_run") = false, nb::arg("save_config").none() = nb::none(),
           nb::arg("reduction_config").none() = nb::none(),
           nb::arg("include_collections") = std::vector<std::string>{}, nb::arg("save_all") = false,
           nb::arg("compute_threads") = 0, nb::arg("queue_bytes") = std::size_t{64} << 20,
           nb::arg("backpressure") = "block", nb::arg("configuration_json") = "{}",
           nb::arg("rules") = std::vector<RuleTuple>{},
           nb::arg("live_budget_bytes") = std::size_t{16} << 20,
           nb::arg("system_interval_ms").none() = nb::none(),
           "Opens the run; `collections` becomes the session's own. `backpressure`: \"block\" or "
           "\"drop\". `system_interval_ms`: between samples of the machine; None = none.\n\n"
           "RunExistsError when the worker has already written to out_dir and `resume` is False.")
      .def_prop_ro("collections", [](const PySession& self) { return self.collections; })
      .def("invalidate_plan", [](const PySession& self) { self.recorder().invalidate_plan(); })
      .def(
          "intern",
          [](const PySession& self, const std::string& name,
             const std::vector<std::string>& collections) {
            return self.recorder().intern(name, collections);
          },
          nb::arg("name"), nb::arg("collections") = std::vector<std::string>{})
      .def(
          "find",
          [](const PySession& self, const std::string& name) { return self.recorder().find(name); },
          nb::arg("name"))
      .def(
          "is_included",
          [](const PySession& self, std::string_view name,
             const std::vector<std::string>& collections) {
            return self.recorder().is_included(name, collections);
          },
          nb::arg("name"), nb::arg("collections") = std::vector<std::string>{})
      .def("tensor_name", &tensor_name, nb::arg("id"))
      .def_prop_ro("plan_version",
                   [](const PySession& self) { return self.recorder().plan_version(); })
      .def("add_rule", &add_rule, nb::arg("name"), nb::arg("callable"),
           nb::arg("actions") = std::vector<std::string>{},
           nb::sig(
               "def add_rule(self, name: str, callable: collections.abc.Callable[[int, int, int], "
               "bool | None | collections.abc.Sequence[Finding | collections.abc.Mapping[str, "
               "typing.Any]]], actions: collections.abc.Sequence[str] = ()) -> None"),
           "A rule called as callable(step, mode, mode_step) after each step. Before the first "
           "step.\n\n"
           "True is a finding without details. An exception switches the rule off with status "
           "\"Error\".");
}

void bind_steps(nb::class_<PySession>& type) {
  type.def("set_mode",
           [](const PySession& self, int mode) { self.recorder().set_mode(to_mode(mode)); })
      .def_prop_ro("mode",
                   [](const PySession& self) { return static_cast<int>(self.recorder().mode()); })
      .def_prop_ro(
          "step", [](const PySession& self) { return self.recorder().step(); },
          "Global; -1 before the first.")
      .def("mode_step",
           [](const PySession& self, int mode) { return self.recorder().mode_step(to_mode(mode)); })
      .def(
          "begin_step",
          [](const PySession& self) {
            const nb::gil_scoped_release release;  // may end an open step
            const bool is_due = self.recorder().begin_step().any_due();
            return is_due || self.session->has_request();
          },
          "Ends an open step, plans the next. True when anything is due, or when somebody outside "
          "waits for the step's border.")
      .def(
          "gate", [](const PySession& self) { return PyGate{self.session}; },
          "What lets steps pass in which nothing is due; keeps the session from nothing.")
      .def_prop_ro("is_next_step_due",
                   [](const PySession& self) { return self.recorder().is_next_step_due(); })
      .def_prop_ro("in_step", [](const PySession& self) { return self.recorder().in_step(); })
      .def_prop_ro("any_due",
                   [](const PySession& self) { return self.recorder().plan().any_due(); })
      .def("is_due",
           [](const PySession& self, TensorId id) { return self.recorder().plan().is_due(id); })
      .def(
          "due_flags",
          [](const PySession& self, TensorId id) {
            return static_cast<int>(self.recorder().plan().flags(id));
          },
          "0 not due; bits 1 statistics, 2 raw value, 4 histogram.")
      .def("end_step", [](const PySession& self) {
        const nb::gil_scoped_release release;
        self.recorder().end_step();
      });
}

void bind_outcome(nb::class_<PySession>& type) {
  type.def_prop_ro("stop_reason", [](const PySession& self) { return self.session->stop_reason(); })
      .def(
          "add_function",
          [](const PySession& self, const std::string& name, nb::callable callable) {
            self.session->add_function(name, make_python_function(std::move(callable)));
          },
          nb::arg("name"), nb::arg("callable"),
          nb::sig("def add_function(self, name: str, callable: "
                  "collections.abc.Callable[[Finding], object]) -> None"),
          "For the action save_checkpoint: called in obey().")
      .def(
          "obey",
          [](const PySession& self) {
            const nb::gil_scoped_release release;
            return self.session->obey();
          },
          "Between steps: calls the functions that findings asked for, does what other processes "
          "asked for, and gives the finding for which the training has to stop.")
      .def_prop_ro("findings", [](const PySession& self) { return self.session->findings(); })
      .def("rule_reports", [](const PySession& self) { return self.session->rule_reports(); })
      .def("live_trial", [](const PySession& self) { return self.session->live_trial(); })
      .def(
          "put_document",
          [](const PySession& self, const std::string& name, const std::string& text) {
            const nb::gil_scoped_release release;
            self.recorder().put_document(name, text);
          },
          nb::arg("name"), nb::arg("text"),
          "Writes or replaces a file of the run; a dry run has none.")
      .def("export_collections",
           [](const PySession& self) { self.recorder().export_collections(); })
      .def(
          "flush",
          [](const PySession& self, double timeout_s) {
            const nb::gil_scoped_release release;
            return self.recorder().flush(static_cast<std::int64_t>(timeout_s * 1e9));
          },
          nb::arg("timeout_s") = 10.0)
      .def("close",
           [](const PySession& self) {
             const nb::gil_scoped_release release;
             self.session->close();
           })
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, typing.Any]"),
           "written_steps, dropped_steps, written_bytes, last_error.")
      .def_prop_ro("run_id", [](const PySession& self) { return self.recorder().run_id(); })
      .def_prop_ro("out_dir", [](const PySession& self) { return self.out_dir; })
      .def_prop_ro("is_closed", [](const PySession& self) { return self.recorder().is_closed(); });
}

}  // namespace

PySession::~PySession() {
  // The last owner drains the writer, which may take as long as the disk wants.
  const nb::gil_scoped_release release;
  collections.home.reset();
  session.reset();
}

void bind_session(nb::module_& module) {
  nb::class_<PyGate>(module, "Gate", "Begins the steps of a session in which nothing is due.")
      .def("pass_step", &PyGate::pass, nb::arg("driver"),
           "Begins the next step and gives True, unless it or the one after it is due. A caller "
           "that is not the driver only makes sure that a step is open.");
  nb::class_<PySession> type(
      module, "Session",
      "One training process: recorder, live trial, rules and actions.\n\n"
      "`record*` may be called from several threads; the rest from one thread at a time. Memory "
      "must\n"
      "stay valid and unchanged during the call; the GIL is released while it is read.");
  bind_setup(type);
  bind_steps(type);
  bind_record(type);
  bind_device(type);
  bind_outcome(type);
}

}  // namespace tensortap::bindings
