// capture/ for Python: steps whose statistics a device computes, and the rows that it computed.
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/session.h"
#include "tensor/part_rows.h"

namespace tensortap::bindings {
namespace {

[[noreturn]] void fail(const char* message) {
  PyErr_Clear();  // the cause is in the message
  throw Error(ErrorCode::kInvalidArgument, message);
}

// The members of a tuple of known size.
template <std::size_t size>
std::array<PyObject*, size> unpack(PyObject* tuple, const char* expected) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != size) fail(expected);
  std::array<PyObject*, size> members{};
  for (std::size_t i = 0; i < size; ++i) {
    members[i] = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
  }
  return members;
}

std::uint64_t to_count(PyObject* number) {
  const unsigned long long count = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred() != nullptr) fail("a number of rows or elements must not be negative");
  return count;
}

const void* to_address(PyObject* number) {
  const void* address = PyLong_AsVoidPtr(number);
  if (PyErr_Occurred() != nullptr) fail("an address must be an integer");
  return address;
}

PartRows to_part(PyObject* tuple) {
  const auto [statistics, histograms, rows, padding] =
      unpack<4>(tuple, "a part is (statistics address, histograms address or 0, rows, padding)");
  PartRows part;
  part.statistics = static_cast<const double*>(to_address(statistics));
  part.histograms = static_cast<const std::int32_t*>(to_address(histograms));
  part.row_count = to_count(rows);
  part.padding = to_count(padding);
  if (part.row_count > 0 && part.statistics == nullptr) fail("rows must have an address");
  return part;
}

// The items and what they borrow.
struct ParsedItems {
  std::deque<std::vector<std::int64_t>> shapes;
  std::deque<std::vector<PartRows>> parts;
  std::vector<ComputedItem> items;

  void add(PyObject* tuple) {
    const auto [id, dtype, shape, raw, has_histogram, rows] = unpack<6>(
        tuple, "an item is (id, dtype_code, shape, raw address or 0, has_histogram, parts)");
    if (!PyList_Check(rows)) fail("the parts of an item must be a list");
    ComputedItem item;
    item.tensor = to_tensor_id(id);
    item.has_histogram = PyObject_IsTrue(has_histogram) == 1;
    item.view.dtype = to_dtype(static_cast<int>(to_count(dtype)));
    item.view.data = to_address(raw);
    item.view.shape = shapes.emplace_back(nb::cast<std::vector<std::int64_t>>(nb::handle(shape)));
    std::vector<PartRows>& own = parts.emplace_back();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows); ++i) {
      own.push_back(to_part(PyList_GET_ITEM(rows, i)));
    }
    item.parts = own;
    items.push_back(item);
  }
};

void complete_step(const PySession& self, std::uint64_t ticket, nb::list items) {
  ParsedItems parsed;
  for (const nb::handle item : items) parsed.add(item.ptr());
  const nb::gil_scoped_release release;
  self.recorder().complete_step(ticket, parsed.items);
}

}  // namespace

void bind_device(nb::class_<PySession>& type) {
  type.def(
          "defer_step",
          [](const PySession& self) {
            const nb::gil_scoped_release release;
            return self.recorder().defer_step();
          },
          "Ends the step but holds it, and those after it, back until complete_step.\n\nIts "
          "ticket; "
          "0 when no step is open.")
      .def("complete_step", &complete_step, nb::arg("ticket"), nb::arg("items"),
           nb::sig("def complete_step(self, ticket: int, items: list[tuple[int, int, tuple[int, "
                   "...], int, bool, list[tuple[int, int, int, int]]]]) -> None"),
           "Adds what a device computed and hands the step on. Items: (id, dtype_code, shape, "
           "address of the raw value in C order or 0, has_histogram, parts); parts: (address of "
           "rows of float64, address of rows of 64 int32 or 0, number of rows, NaN elements among "
           "them that are padding). A tensor at most once.");
}

}  // namespace tensortap::bindings
