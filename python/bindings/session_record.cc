// The recording half of _core.Session. The calls made for every tensor parse their arguments with
// the C API and reuse their memory, so that a step in steady state allocates nothing.
#include <limits>
#include <map>

#include <fmt/core.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/session.h"

namespace tensortap::bindings {
namespace {

// One a thread: autograd calls from threads of its own.
struct Scratch {
  ViewParser views;
  std::vector<TensorId> ids;
  std::vector<RecordItem> items;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  scratch.views.clear();
  scratch.ids.clear();
  scratch.items.clear();
  return scratch;
}

void record(const PySession& self, TensorId id, nb::handle data_ptr, nb::handle dtype,
            nb::handle shape, nb::handle strides) {
  Scratch& scratch = thread_scratch();
  scratch.views.add(data_ptr.ptr(), dtype.ptr(), shape.ptr(), strides.ptr());
  const nb::gil_scoped_release release;
  self.recorder().record(id, scratch.views.view(0));
}

void record_raw(const PySession& self, TensorId id, nb::handle data_ptr, nb::handle dtype,
                nb::handle shape, nb::handle strides) {
  Scratch& scratch = thread_scratch();
  scratch.views.add(data_ptr.ptr(), dtype.ptr(), shape.ptr(), strides.ptr());
  const nb::gil_scoped_release release;
  self.recorder().record_raw(id, scratch.views.view(0));
}

void record_batch(const PySession& self, nb::handle items) {
  if (!PyList_Check(items.ptr()) && !PyTuple_Check(items.ptr())) {
    throw Error(ErrorCode::kInvalidArgument, "record_batch takes a list of tuples");
  }
  Scratch& scratch = thread_scratch();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 5) {
      throw Error(ErrorCode::kInvalidArgument,
                  "record_batch takes tuples of (id, data_ptr, dtype_code, shape, strides)");
    }
    scratch.ids.push_back(to_tensor_id(PyTuple_GET_ITEM(item, 0)));
    scratch.views.add(PyTuple_GET_ITEM(item, 1), PyTuple_GET_ITEM(item, 2),
                      PyTuple_GET_ITEM(item, 3), PyTuple_GET_ITEM(item, 4));
  }
  // Only now: adding may have moved what the views borrow.
  for (std::size_t i = 0; i < scratch.ids.size(); ++i) {
    scratch.items.push_back({scratch.ids[i], scratch.views.view(i)});
  }
  const nb::gil_scoped_release release;
  self.recorder().record_batch(scratch.items);
}

// Where a stored statistic lives in the struct.
std::uint64_t* count_field(Statistics& s, StatisticId id) {
  switch (id) {
    case StatisticId::kCount:
      return &s.count;
    case StatisticId::kNanCount:
      return &s.nan_count;
    case StatisticId::kPositiveInfCount:
      return &s.positive_inf_count;
    case StatisticId::kNegativeInfCount:
      return &s.negative_inf_count;
    case StatisticId::kZeroCount:
      return &s.zero_count;
    case StatisticId::kSubnormalCount:
      return &s.subnormal_count;
    case StatisticId::kOverflowCount:
      return &s.overflow_count;
    case StatisticId::kUnderflowCount:
      return &s.underflow_count;
    default:
      return nullptr;
  }
}

double* value_field(Statistics& s, StatisticId id) {
  switch (id) {
    case StatisticId::kMin:
      return &s.min;
    case StatisticId::kMax:
      return &s.max;
    case StatisticId::kMean:
      return &s.mean;
    case StatisticId::kVariance:
      return &s.variance;
    case StatisticId::kAbsMin:
      return &s.abs_min;
    case StatisticId::kAbsMean:
      return &s.abs_mean;
    case StatisticId::kAbsVariance:
      return &s.abs_variance;
    default:
      return nullptr;
  }
}

void record_statistics(const PySession& self, TensorId id, int dtype,
                       const std::vector<std::int64_t>& shape,
                       const std::map<std::string, double>& values) {
  Statistics statistics;
  for (const auto& [name, value] : values) {
    const StatisticId statistic = to_statistic(name);
    if (std::uint64_t* count = count_field(statistics, statistic)) {
      if (!(value >= 0.0 && value < 1e18)) {
        throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' must be a count", name));
      }
      *count = static_cast<std::uint64_t>(value);
    } else if (double* field = value_field(statistics, statistic)) {
      *field = value;
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' follows from other statistics and cannot be recorded", name));
    }
  }
  self.recorder().record_statistics(id, {to_dtype(dtype), shape}, statistics);
}

}  // namespace

TensorId to_tensor_id(PyObject* number) {
  const long id = PyLong_AsLong(number);
  if (id < 0 || id > std::numeric_limits<TensorId>::max()) {
    PyErr_Clear();
    throw Error(ErrorCode::kInvalidArgument, "a tensor id must be a number that intern() gave");
  }
  return static_cast<TensorId>(id);
}

void bind_record(nb::class_<PySession>& type) {
  type.def("record", &record, nb::arg("id"), nb::arg("data_ptr"), nb::arg("dtype_code"),
           nb::arg("shape"), nb::arg("strides").none(),
           nb::sig("def record(self, id: int, data_ptr: int, dtype_code: int, shape: tuple[int, "
                   "...], strides: tuple[int, ...] | None, /) -> None"),
           "A tensor in this process's memory. `strides` in elements; None = C-contiguous.")
      .def("record_batch", &record_batch,
           nb::sig("def record_batch(self, items: collections.abc.Sequence[tuple[int, int, int, "
                   "tuple[int, ...], tuple[int, ...] | None]], /) -> None"),
           "The same for many: (id, data_ptr, dtype_code, shape, strides). `items`: list or tuple.")
      .def(
          "record_same",
          [](const PySession& self, TensorId id, TensorId source) {
            return self.recorder().record_same(id, source);
          },
          nb::arg("id"), nb::arg("source"),
          "Unchanged memory that was recorded as `source` in this step. False: record it itself.")
      .def("record_raw", &record_raw, nb::arg("id"), nb::arg("data_ptr"), nb::arg("dtype_code"),
           nb::arg("shape"), nb::arg("strides").none(),
           nb::sig("def record_raw(self, id: int, data_ptr: int, dtype_code: int, shape: "
                   "tuple[int, ...], strides: tuple[int, ...] | None, /) -> None"),
           "Keeps the raw value whatever the plan says.")
      .def("record_statistics", &record_statistics,
           nb::sig("def record_statistics(self, id: int, dtype_code: int, shape: tuple[int, ...], "
                   "statistics: collections.abc.Mapping[str, float], /) -> None"),
           "Statistics that the framework computed; stored names of `statistic_table()`, all "
           "others 0.")
      .def(
          "record_number",
          [](const PySession& self, TensorId id, double value) {
            self.recorder().record_number(id, value);
          },
          nb::arg("id"), nb::arg("value"), "A number, when it is due.")
      .def("record_scalar", [](const PySession& self, const std::string& name,
                               double value) { self.recorder().record_scalar(name, value); })
      .def("record_text", [](const PySession& self, const std::string& name,
                             const std::string& text) { self.recorder().record_text(name, text); });
}

}  // namespace tensortap::bindings
