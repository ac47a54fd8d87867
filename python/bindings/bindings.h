// What the files of the module share: one bind_* function a folder of src/, and the C++ side of
// Python objects that need more than the engine's own class. Everything here runs with the GIL held
// unless it says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "capture/collection.h"
#include "rules/finding.h"
#include "rules/parameters.h"
#include "tensor/dtype.h"
#include "tensor/histogram.h"
#include "tensor/statistics.h"
#include "tensor/tensor_view.h"
#include "trace/mode.h"
#include "trial/trial.h"

namespace tensortap {

class Recorder;

namespace bindings {

namespace nb = nanobind;

void bind_base(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_capture(nb::module_& module);
void bind_trial(nb::module_& module);
void bind_rules(nb::module_& module);
void bind_actions(nb::module_& module);
void bind_session(nb::module_& module);

// _core.Statistics: the numbers and what they are the numbers of.
struct PyStatistics {
  Statistics statistics;
  std::optional<Histogram> histogram;
  Layout layout;
};

// Where collections live: in a set of their own until a session takes them over.
struct CollectionHome {
  CollectionSet set;
  Recorder* recorder = nullptr;
  std::shared_ptr<void> session;  // keeps `recorder` alive

  CollectionSet& collections();
  void changed();  // plans made from the old content no longer hold
};

// _core.CollectionSet.
struct PyCollectionSet {
  std::shared_ptr<CollectionHome> home = std::make_shared<CollectionHome>();
};

// _core.Collection: by name, so that replacing one in its set leaves no dangling pointer.
struct PyCollection {
  std::shared_ptr<CollectionHome> home;
  std::string name;

  Collection& get() const { return home->collections().get_or_create(name); }
};

CollectionSet copy_collections(const CollectionSet& from);

// Checked conversions from the numbers of the Python side; throw Error(kInvalidArgument).
Mode to_mode(int number);
DType to_dtype(int code);
StatisticId to_statistic(const std::string& name);

nb::tuple shape_tuple(const std::vector<std::int64_t>& shape);

// A view of memory that Python gave by address. Shape and strides are appended to `dimensions`,
// which the view borrows: see finish().
class ViewParser {
 public:
  void clear();
  // (data_ptr, dtype_code, shape, strides in elements or None); throws Error(kInvalidArgument).
  void add(PyObject* data_ptr, PyObject* dtype_code, PyObject* shape, PyObject* strides);
  // The views, in order; valid until the next clear() or add().
  std::size_t size() const { return entries_.size(); }
  TensorView view(std::size_t index) const;

 private:
  struct Entry {
    const void* data;
    DType dtype;
    std::size_t first;  // in dimensions_: shape, then strides when there are any
    std::size_t rank;
    bool has_strides;
  };
  std::vector<Entry> entries_;
  std::vector<std::int64_t> dimensions_;
};

// (name, parameters, actions) -> RuleSpec.
using RuleTuple =
    std::tuple<std::string, std::map<std::string, std::string>, std::vector<std::string>>;
std::vector<RuleSpec> to_rule_specs(const std::vector<RuleTuple>& rules);

// name, type, default, required, doc of each.
nb::list parameter_list(std::span<const ParameterDescriptor> parameters);

// Moves a vector into a NumPy array without copying its elements.
template <class T>
nb::object to_numpy(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t shape[1] = {owned->size()};
  nb::capsule owner(owned.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  owned.release();
  return nb::cast(nb::ndarray<nb::numpy, T>(data, 1, shape, owner));
}

// A dense tensor as a NumPy array; bfloat16 and float8 widened to float32, everything else over the
// same bytes, read-only.
nb::object tensor_to_numpy(const Layout& layout, BufferPool::Buffer data);

}  // namespace bindings
}  // namespace tensortap
