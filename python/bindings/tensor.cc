// tensor/ for Python: dtypes, statistics, views of memory, NumPy arrays.
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/core.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/small_floats.h"
#include "tensor/compute_statistics.h"
#include "tensor/tensor_view.h"

namespace tensortap::bindings {
namespace {

[[noreturn]] void fail(const std::string& message) {
  PyErr_Clear();  // the cause is in the message
  throw Error(ErrorCode::kInvalidArgument, message);
}

// Appends the items of a tuple (torch.Size is one) or list of integers.
std::size_t append_integers(PyObject* sequence, std::vector<std::int64_t>& out, const char* what) {
  if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) {
    fail(fmt::format("the {} of a tensor must be a tuple of integers", what));
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  PyObject** items = PySequence_Fast_ITEMS(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const std::int64_t item = PyLong_AsLongLong(items[i]);
    if (item == -1 && PyErr_Occurred() != nullptr) {
      fail(fmt::format("the {} of a tensor must be a tuple of integers", what));
    }
    out.push_back(item);
  }
  return static_cast<std::size_t>(count);
}

PyStatistics compute(nb::handle data_ptr, nb::handle dtype, nb::handle shape, nb::handle strides,
                     bool histogram) {
  ViewParser parser;
  parser.add(data_ptr.ptr(), dtype.ptr(), shape.ptr(), strides.ptr());
  const TensorView view = parser.view(0);
  PyStatistics result;
  result.layout = {view.dtype, {view.shape.begin(), view.shape.end()}};
  if (histogram) result.histogram.emplace();
  const nb::gil_scoped_release release;
  compute_statistics(view, result.statistics, histogram ? &*result.histogram : nullptr);
  return result;
}

nb::object statistic_object(const PyStatistics& self, StatisticId id) {
  const double value = statistic_value(self.statistics, id);
  if (statistic_descriptor(id).is_count) return nb::int_(static_cast<std::uint64_t>(value));
  return nb::float_(value);
}

nb::object histogram_arrays(const PyStatistics& self) {
  if (!self.histogram) return nb::none();
  const Histogram& histogram = *self.histogram;
  std::vector<double> edges;
  edges.reserve(Histogram::kBucketCount + 1);
  for (int i = 0; i < Histogram::kBucketCount; ++i) edges.push_back(histogram.lower(i));
  edges.push_back(histogram.upper(Histogram::kBucketCount - 1));
  const std::vector<std::int64_t> counts(histogram.counts.begin(), histogram.counts.end());
  return nb::make_tuple(to_numpy(std::move(edges)), to_numpy(counts));
}

nb::list statistic_rows() {
  nb::list rows;
  for (const StatisticDescriptor& row : statistic_table()) {
    nb::dict entry;
    entry["name"] = nb::str(row.name.data(), row.name.size());
    entry["is_stored"] = row.is_stored;
    entry["is_count"] = row.is_count;
    entry["unit"] = nb::str(row.unit.data(), row.unit.size());
    entry["formula"] = nb::str(row.formula.data(), row.formula.size());
    entry["doc"] = nb::str(row.doc.data(), row.doc.size());
    rows.append(entry);
  }
  return rows;
}

std::string statistics_repr(const PyStatistics& self) {
  const Statistics& s = self.statistics;
  return fmt::format(
      "Statistics({}{}, min={:.6g}, max={:.6g}, mean={:.6g}, std={:.6g}, nan={}, "
      "inf={})",
      dtype_name(self.layout.dtype), nb::str(shape_tuple(self.layout.shape)).c_str(), s.min, s.max,
      s.mean, std::sqrt(s.variance), s.nan_count, s.positive_inf_count + s.negative_inf_count);
}

// One property a row of the table.
void bind_statistic_properties(nb::class_<PyStatistics>& type) {
  for (const StatisticDescriptor& row : statistic_table()) {
    const std::string name(row.name);
    const std::string doc = fmt::format("{} Unit: {}.", row.doc, row.unit);
    const StatisticId id = row.id;
    if (row.is_count) {
      type.def_prop_ro(
          name.c_str(),
          [id](const PyStatistics& self) {
            return static_cast<std::uint64_t>(statistic_value(self.statistics, id));
          },
          doc.c_str());
    } else {
      type.def_prop_ro(
          name.c_str(),
          [id](const PyStatistics& self) { return statistic_value(self.statistics, id); },
          doc.c_str());
    }
  }
}

void bind_statistics(nb::module_& module) {
  nb::class_<PyStatistics> type(
      module, "Statistics", nb::is_final(),
      "All statistics of one tensor at one step: `s.abs_mean` or `s[\"abs_mean\"]`.\n\n"
      "Values are over the finite elements (counts beside them); `numpy_value` gives what NumPy\n"
      "would say for the whole tensor, where NaN and infinities propagate.");
  bind_statistic_properties(type);
  type.def_prop_ro(
          "dtype",
          [](const PyStatistics& self) { return std::string(dtype_name(self.layout.dtype)); })
      .def_prop_ro(
          "shape", [](const PyStatistics& self) { return shape_tuple(self.layout.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("has_histogram",
                   [](const PyStatistics& self) { return self.histogram.has_value(); })
      .def_prop_ro("histogram", &histogram_arrays,
                   nb::sig("def histogram(self) -> tuple[numpy.typing.NDArray[numpy.float64], "
                           "numpy.typing.NDArray[numpy.int64]] | None"),
                   "(65 edges, 64 counts), ascending; None without one.")
      .def(
          "numpy_value",
          [](const PyStatistics& self, const std::string& name) {
            return numpy_value(self.statistics, to_statistic(name));
          },
          nb::arg("name"),
          "What NumPy would say for the whole tensor: NaN and infinities propagate.")
      .def(
          "__getitem__",
          [](const PyStatistics& self, const std::string& name) {
            return statistic_object(self, to_statistic(name));
          },
          nb::sig("def __getitem__(self, name: str, /) -> float"))
      .def("keys",
           [](const PyStatistics&) {
             std::vector<std::string> names;
             for (const StatisticDescriptor& row : statistic_table()) names.emplace_back(row.name);
             return names;
           })
      .def(
          "to_dict",
          [](const PyStatistics& self) {
            nb::dict values;
            for (const StatisticDescriptor& row : statistic_table()) {
              values[nb::str(row.name.data(), row.name.size())] = statistic_object(self, row.id);
            }
            return values;
          },
          nb::sig("def to_dict(self) -> dict[str, float]"))
      .def("__repr__", &statistics_repr);
}

// Owns `data` for as long as the array lives.
template <class Owned>
nb::capsule owner_capsule(Owned owned) {
  auto holder = std::make_unique<Owned>(std::move(owned));
  nb::capsule owner(holder.get(), [](void* p) noexcept { delete static_cast<Owned*>(p); });
  holder.release();
  return owner;
}

nb::dlpack::dtype numpy_dtype(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(dtype_size_bytes(dtype) * 8);
  const auto code = [&] {
    if (dtype == DType::kBool) return nb::dlpack::dtype_code::Bool;
    if (dtype_is_complex(dtype)) return nb::dlpack::dtype_code::Complex;
    if (dtype_is_floating(dtype)) return nb::dlpack::dtype_code::Float;
    return dtype >= DType::kUInt8 ? nb::dlpack::dtype_code::UInt : nb::dlpack::dtype_code::Int;
  }();
  return {static_cast<std::uint8_t>(code), bits, 1};
}

}  // namespace

DType to_dtype(int code) {
  const auto dtype =
      code >= 0 && code <= 255 ? dtype_from_code(static_cast<std::uint8_t>(code)) : std::nullopt;
  if (!dtype)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no dtype has the code {}", code));
  return *dtype;
}

StatisticId to_statistic(const std::string& name) {
  const auto id = statistic_from_name(name);
  if (id) return *id;
  std::string names;
  for (const StatisticDescriptor& row : statistic_table()) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("no statistic is called '{}'; there are {}", name, names));
}

nb::tuple shape_tuple(const std::vector<std::int64_t>& shape) {
  nb::list items;
  for (const std::int64_t extent : shape) items.append(extent);
  return nb::tuple(items);
}

void ViewParser::clear() {
  entries_.clear();
  dimensions_.clear();
}

void ViewParser::add(PyObject* data_ptr, PyObject* dtype_code, PyObject* shape, PyObject* strides) {
  Entry entry{};
  const std::size_t first = dimensions_.size();
  entry.first = first;
  entry.data = PyLong_AsVoidPtr(data_ptr);
  if (entry.data == nullptr && PyErr_Occurred() != nullptr) fail("data_ptr must be an address");
  const long code = PyLong_AsLong(dtype_code);
  if (code == -1 && PyErr_Occurred() != nullptr) fail("dtype_code must be an integer");
  entry.dtype = to_dtype(static_cast<int>(code));
  entry.rank = append_integers(shape, dimensions_, "shape");
  entry.has_strides = strides != Py_None;
  std::int64_t element_count = 1;
  for (std::size_t i = first; i < dimensions_.size(); ++i) {
    if (dimensions_[i] < 0) fail("the shape of a tensor must not be negative");
    if (__builtin_mul_overflow(element_count, dimensions_[i], &element_count)) {
      fail("the shape of a tensor is larger than memory");
    }
  }
  if (entry.has_strides) {
    if (append_integers(strides, dimensions_, "strides") != entry.rank) {
      fail("shape and strides of a tensor must be of the same length");
    }
    const auto size = static_cast<std::int64_t>(dtype_size_bytes(entry.dtype));
    for (std::size_t i = first + entry.rank; i < dimensions_.size(); ++i) {
      if (__builtin_mul_overflow(dimensions_[i], size, &dimensions_[i])) {
        fail("the strides of a tensor reach beyond memory");
      }
    }
  }
  if (entry.data == nullptr && element_count > 0)
    fail("a tensor with elements must have an address");
  entries_.push_back(entry);
}

TensorView ViewParser::view(std::size_t index) const {
  const Entry& entry = entries_[index];
  const std::int64_t* shape = dimensions_.data() + entry.first;
  TensorView view{entry.data, entry.dtype, {shape, entry.rank}, {}};
  if (entry.has_strides) view.strides_bytes = {shape + entry.rank, entry.rank};
  return view;
}

nb::object tensor_to_numpy(const Layout& layout, BufferPool::Buffer data) {
  const std::vector<std::size_t> shape(layout.shape.begin(), layout.shape.end());
  if (is_small_float(layout.dtype)) {
    std::vector<float> wide = widen_small_floats(layout.dtype, data.bytes());
    const float* first = wide.data();
    return nb::cast(nb::ndarray<nb::numpy, const float>(first, shape.size(), shape.data(),
                                                        owner_capsule(std::move(wide))));
  }
  const std::byte* first = data.data.get();
  return nb::cast(nb::ndarray<nb::numpy, nb::ro>(first, shape.size(), shape.data(),
                                                 owner_capsule(std::move(data)), nullptr,
                                                 numpy_dtype(layout.dtype)));
}

void bind_tensor(nb::module_& module) {
  module.def(
      "dtype_code",
      [](const std::string& name) {
        const auto dtype = dtype_from_name(name);
        if (!dtype) throw Error(ErrorCode::kNotFound, fmt::format("no dtype is called '{}'", name));
        return static_cast<int>(*dtype);
      },
      nb::arg("name"),
      "Code of a dtype by PyTorch's name (\"float32\", \"bfloat16\", \"float8_e4m3fn\", "
      "\"bool\").");
  module.def(
      "dtype_name", [](int code) { return std::string(dtype_name(to_dtype(code))); },
      nb::arg("code"));
  bind_statistics(module);
  module.def(
      "compute_statistics", &compute, nb::arg("data_ptr"), nb::arg("dtype_code"), nb::arg("shape"),
      nb::arg("strides").none() = nb::none(), nb::arg("histogram") = false,
      nb::sig("def compute_statistics(data_ptr: int, dtype_code: int, shape: tuple[int, ...], "
              "strides: tuple[int, ...] | None = None, histogram: bool = False) -> Statistics"));
  module.def("simd_targets", &simd_targets);
  module.def("force_simd_target", &force_simd_target, nb::arg("name"));
  module.def("statistic_table", &statistic_rows,
             nb::sig("def statistic_table() -> list[dict[str, typing.Any]]"));
  module.def(
      "statistic_name",
      [](const std::string& name) {
        return std::string(statistic_descriptor(to_statistic(name)).name);
      },
      nb::arg("name"), "The table's name for a name or smdebug alias (\"abs_l2_norm\" -> \"l2\").");
}

}  // namespace tensortap::bindings
