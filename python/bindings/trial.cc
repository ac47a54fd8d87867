// trial/ for Python. A trial is not thread-safe: every call keeps the GIL, but for the pauses of
// wait_for_steps.
#include <algorithm>
#include <chrono>
#include <thread>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/bindings.h"

namespace tensortap::bindings {
namespace {

using Steps = std::vector<std::int64_t>;
constexpr int kGlobal = static_cast<int>(Mode::kGlobal);

std::vector<std::string> tensor_names(const Trial& self, const std::vector<std::string>& regexes,
                                      const std::optional<std::string>& collection,
                                      std::optional<std::int64_t> step, int mode) {
  return self.tensor_names({regexes, collection, step, to_mode(mode)});
}

std::optional<PyStatistics> row(const Trial& self, const std::string& name, std::int64_t step,
                                int mode, const std::string& worker) {
  const auto found = self.row(name, step, to_mode(mode), worker);
  if (!found) return std::nullopt;
  PyStatistics result{found->statistics, std::nullopt, {}};
  if (found->has_histogram) result.histogram = found->histogram;
  if (auto layout = self.layout(name, step, to_mode(mode), worker)) result.layout = *layout;
  return result;
}

nb::object layout(const Trial& self, const std::string& name, std::int64_t step, int mode,
                  const std::string& worker) {
  const auto found = self.layout(name, step, to_mode(mode), worker);
  if (!found) return nb::none();
  return nb::make_tuple(std::string(dtype_name(found->dtype)), shape_tuple(found->shape));
}

nb::object value(const Trial& self, const std::string& name, std::int64_t step, int mode,
                 const std::string& worker) {
  auto found = self.value(name, step, to_mode(mode), worker);
  if (!found) return nb::none();
  return tensor_to_numpy(found->layout, std::move(found->data));
}

nb::tuple column(const Trial& self, const std::string& name, const std::string& statistic, int mode,
                 const std::string& worker) {
  Column found = self.column(name, to_statistic(statistic), to_mode(mode), worker);
  return nb::make_tuple(to_numpy(std::move(found.steps)), to_numpy(std::move(found.values)));
}

nb::list columns(const Trial& self, const std::vector<std::string>& names,
                 const std::string& statistic, int mode, const std::string& worker) {
  nb::list result;
  for (const std::string& name : names) result.append(column(self, name, statistic, mode, worker));
  return result;
}

// Polls from here and not inside Trial, so that the GIL is free and Ctrl-C works while nothing
// comes.
std::optional<std::int64_t> wait_for_steps(Trial& self, const Steps& steps, int mode_number,
                                           std::optional<double> timeout_s) {
  using Clock = std::chrono::steady_clock;
  const Mode mode = to_mode(mode_number);
  const auto start = Clock::now();
  auto pause = std::chrono::milliseconds(10);
  for (const std::int64_t step : steps) {
    while (true) {
      self.refresh();
      const StepState state = self.has_passed_step(step, mode);
      if (state == StepState::kAvailable) break;
      if (state == StepState::kUnavailable) return step;
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (timeout_s && waited.count() >= *timeout_s) {
        throw Error(ErrorCode::kUnavailable,
                    "step " + std::to_string(step) + " did not come in time: " + self.uri());
      }
      {
        const nb::gil_scoped_release release;
        std::this_thread::sleep_for(pause);
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      pause = std::min(pause * 2, std::chrono::milliseconds(100));
    }
  }
  return std::nullopt;
}

std::shared_ptr<Trial> open_trial(const std::string& uri, std::optional<std::int64_t> first_step,
                                  std::optional<std::int64_t> last_step) {
  try {
    return Trial::open(uri, {first_step, last_step});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    const nb::object type = nb::module_::import_("tensortap.exceptions").attr("RunNotFoundError");
    PyErr_SetString(type.ptr(), error.what());
    throw nb::python_error();
  }
}

void bind_step_info(nb::module_& module) {
  nb::class_<StepInfo>(module, "StepInfo", "When and in which mode a step was.")
      .def_ro("step", &StepInfo::step, "Global step.")
      .def_prop_ro("mode", [](const StepInfo& self) { return static_cast<int>(self.mode); })
      .def_ro("mode_step", &StepInfo::mode_step)
      .def_ro("wall_time_ns", &StepInfo::wall_time_ns, "When it began, since the Unix epoch.")
      .def_ro("duration_ns", &StepInfo::duration_ns)
      .def_ro("session", &StepInfo::session,
              "0 for the first start of the run, +1 for each resume.");
}

void bind_tensor_queries(nb::class_<Trial>& type) {
  type.def(
          "tensor_steps",
          [](const Trial& self, const std::string& name, int mode) {
            return self.tensor_steps(name, to_mode(mode));
          },
          nb::arg("name"), nb::arg("mode") = kGlobal)
      .def(
          "tensor_workers",
          [](const Trial& self, const std::string& name, std::int64_t step, int mode) {
            return self.tensor_workers(name, step, to_mode(mode));
          },
          nb::arg("name"), nb::arg("step"), nb::arg("mode") = kGlobal)
      .def("row", &row, nb::arg("name"), nb::arg("step"), nb::arg("mode") = kGlobal,
           nb::arg("worker") = "")
      .def("layout", &layout, nb::arg("name"), nb::arg("step"), nb::arg("mode") = kGlobal,
           nb::arg("worker") = "",
           nb::sig("def layout(self, name: str, step: int, mode: int = 4, worker: str = '') -> "
                   "tuple[str, tuple[int, ...]] | None"),
           "(dtype name, shape).")
      .def("value", &value, nb::arg("name"), nb::arg("step"), nb::arg("mode") = kGlobal,
           nb::arg("worker") = "",
           nb::sig("def value(self, name: str, step: int, mode: int = 4, worker: str = '') -> "
                   "numpy.typing.NDArray[typing.Any] | None"),
           "Read-only and without a copy; bfloat16 and float8 (which NumPy lacks) as float32.")
      .def(
          "text",
          [](const Trial& self, const std::string& name, std::int64_t step, int mode,
             const std::string& worker) { return self.text(name, step, to_mode(mode), worker); },
          nb::arg("name"), nb::arg("step"), nb::arg("mode") = kGlobal, nb::arg("worker") = "")
      .def(
          "column", &column, nb::arg("name"), nb::arg("statistic"), nb::arg("mode") = kGlobal,
          nb::arg("worker") = "",
          nb::sig("def column(self, name: str, statistic: str, mode: int = 4, worker: str = '') -> "
                  "tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float64]]"),
          "(steps, values), ascending.")
      .def("columns", &columns, nb::arg("names"), nb::arg("statistic"), nb::arg("mode") = kGlobal,
           nb::arg("worker") = "",
           nb::sig("def columns(self, names: collections.abc.Sequence[str], statistic: str, mode: "
                   "int = 4, worker: str = '') -> list[tuple[numpy.typing.NDArray[numpy.int64], "
                   "numpy.typing.NDArray[numpy.float64]]]"));
}

void bind_run(nb::class_<Trial>& type) {
  type.def_static("open", &open_trial, nb::arg("uri"), nb::arg("first_step").none() = nb::none(),
                  nb::arg("last_step").none() = nb::none(),
                  "Global steps [first_step, last_step). RunNotFoundError when there is no run.")
      .def_prop_ro("uri", [](const Trial& self) { return self.uri(); })
      .def("refresh", &Trial::refresh, "True when there is anything new.")
      .def("has_ended", &Trial::has_ended)
      .def("run_json", [](Trial& self) { return self.source().run_json(); })
      .def("problems", [](Trial& self) {
        std::vector<std::pair<std::string, std::string>> problems;
        for (const SourceProblem& problem : self.source().problems()) {
          problems.emplace_back(problem.where, problem.what);
        }
        return problems;
      });
}

void bind_run_queries(nb::class_<Trial>& type) {
  type.def("tensor_names", &tensor_names, nb::arg("regexes") = std::vector<std::string>{},
           nb::arg("collection").none() = nb::none(), nb::arg("step").none() = nb::none(),
           nb::arg("mode") = kGlobal)
      .def(
          "has_tensor",
          [](const Trial& self, const std::string& name) { return self.has_tensor(name); },
          nb::arg("name"))
      .def("workers", &Trial::workers)
      .def("modes",
           [](const Trial& self) {
             std::vector<int> numbers;
             for (const Mode mode : self.modes()) numbers.push_back(static_cast<int>(mode));
             return numbers;
           })
      .def(
          "steps",
          [](const Trial& self, int mode, bool show_incomplete) {
            return self.steps(to_mode(mode), show_incomplete);
          },
          nb::arg("mode") = kGlobal, nb::arg("show_incomplete") = false)
      .def("step_info", &Trial::step_info, nb::arg("global_step"))
      .def(
          "global_step",
          [](const Trial& self, int mode, std::int64_t mode_step) {
            return self.global_step(to_mode(mode), mode_step);
          },
          nb::arg("mode"), nb::arg("mode_step"))
      .def(
          "collections",
          [](const Trial& self) {
            PyCollectionSet set;
            set.home->set = copy_collections(self.collections());
            return set;
          },
          "A copy.")
      .def(
          "has_passed_step",
          [](const Trial& self, std::int64_t step, int mode) {
            return static_cast<int>(self.has_passed_step(step, to_mode(mode)));
          },
          nb::arg("step"), nb::arg("mode") = kGlobal,
          "0 unavailable, 1 available, 2 not yet available.")
      .def("wait_for_steps", &wait_for_steps, nb::arg("steps"), nb::arg("mode") = kGlobal,
           nb::arg("timeout_s").none() = nb::none(),
           "The first step that can no longer come, or None. UnavailableError on timeout.");
}

}  // namespace

void bind_trial(nb::module_& module) {
  bind_step_info(module);
  nb::class_<Trial> type(module, "Trial", "A run, opened for reading.");
  bind_run(type);
  bind_run_queries(type);
  bind_tensor_queries(type);
}

}  // namespace tensortap::bindings
