// capture/ for Python: save and reduction configuration, collections.
#include <algorithm>

#include <fmt/core.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/bindings.h"
#include "capture/recorder.h"

namespace tensortap::bindings {
namespace {

// A setter that checks the whole and changes nothing when it is refused.
template <class T>
auto checked_setter(T SaveConfigMode::*member) {
  return [member](SaveConfigMode& self, T value) {
    SaveConfigMode changed = self;
    changed.*member = std::move(value);
    std::sort(changed.save_steps.begin(), changed.save_steps.end());
    changed.validate();
    self = std::move(changed);
  };
}

template <class T>
auto getter(T SaveConfigMode::*member) {
  return [member](const SaveConfigMode& self) { return self.*member; };
}

void bind_save_config(nb::module_& module) {
  nb::class_<SaveConfigMode>(
      module, "SaveConfigMode",
      "When one mode is saved. An invalid value raises InvalidArgumentError and changes nothing.")
      .def(
          "__init__",
          [](SaveConfigMode* self, std::int64_t save_interval, std::int64_t start_step,
             std::optional<std::int64_t> end_step, std::vector<std::int64_t> save_steps) {
            SaveConfigMode config{save_interval, start_step, end_step, std::move(save_steps)};
            std::sort(config.save_steps.begin(), config.save_steps.end());
            config.validate();
            new (self) SaveConfigMode(std::move(config));
          },
          nb::arg("save_interval") = 500, nb::arg("start_step") = 0,
          nb::arg("end_step").none() = nb::none(),
          nb::arg("save_steps") = std::vector<std::int64_t>{})
      .def_prop_rw("save_interval", getter(&SaveConfigMode::save_interval),
                   checked_setter(&SaveConfigMode::save_interval))
      .def_prop_rw("start_step", getter(&SaveConfigMode::start_step),
                   checked_setter(&SaveConfigMode::start_step))
      .def_prop_rw("end_step", getter(&SaveConfigMode::end_step),
                   checked_setter(&SaveConfigMode::end_step), nb::arg("value").none())
      .def_prop_rw("save_steps", getter(&SaveConfigMode::save_steps),
                   checked_setter(&SaveConfigMode::save_steps))
      .def("should_save_step", &SaveConfigMode::should_save_step, nb::arg("mode_step"))
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));

  nb::class_<SaveConfig>(module, "SaveConfig",
                         "One SaveConfigMode a mode; None is filled from the hook's.")
      .def(
          "__init__",
          [](SaveConfig* self, const std::optional<SaveConfigMode>& config) {
            new (self) SaveConfig(config ? SaveConfig::for_all_modes(*config) : SaveConfig{});
          },
          nb::arg("config").none() = nb::none(),
          "The same for all modes; None leaves every mode empty.")
      .def(
          "get", [](const SaveConfig& self, int mode) { return self.at(to_mode(mode)); },
          nb::arg("mode"))
      .def(
          "set",
          [](SaveConfig& self, int mode, const std::optional<SaveConfigMode>& config) {
            self.at(to_mode(mode)) = config;
          },
          nb::arg("mode"), nb::arg("config").none())
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
}

void bind_reduction_config(nb::module_& module) {
  nb::class_<ReductionConfig>(
      module, "ReductionConfig",
      "Reductions are tokens: \"mean\", \"abs_mean\", \"l1_norm\", \"abs_l2_norm\".")
      .def(
          "__init__",
          [](ReductionConfig* self, bool save_raw_tensor, bool save_shape,
             std::vector<std::string> tokens) {
            new (self) ReductionConfig{save_raw_tensor, save_shape, std::move(tokens)};
          },
          nb::arg("save_raw_tensor") = false, nb::arg("save_shape") = false,
          nb::arg("tokens") = std::vector<std::string>{})
      .def_rw("save_raw_tensor", &ReductionConfig::save_raw_tensor)
      .def_rw("save_shape", &ReductionConfig::save_shape)
      .def_rw("tokens", &ReductionConfig::reductions)
      .def_static("parse_reductions", &ReductionConfig::parse_reductions,
                  nb::arg("comma_separated"))
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
}

// Rebuilds a collection, which cannot be copied as such because of its compiled expressions.
Collection rebuild(const Collection& from, const std::vector<std::string>& regexes) {
  Collection copy(from.name());
  for (const std::string& regex : regexes) copy.include(regex);
  for (const std::string& name : from.tensor_names()) copy.add_tensor_name(name);
  copy.save_config = from.save_config;
  copy.reduction_config = from.reduction_config;
  copy.save_histogram = from.save_histogram;
  return copy;
}

void set_tensor_names(const PyCollection& self, const std::set<std::string>& names) {
  Collection& collection = self.get();
  for (const std::string& old : std::vector<std::string>(collection.tensor_names().begin(),
                                                         collection.tensor_names().end())) {
    if (names.count(old) == 0) collection.remove_tensor_name(old);
  }
  for (const std::string& name : names) collection.add_tensor_name(name);
  self.home->changed();
}

// Adds what `change` does to a collection and lets the session know.
template <class Change>
void change(const PyCollection& self, const Change& apply) {
  apply(self.get());
  self.home->changed();
}

void bind_membership(nb::class_<PyCollection>& type) {
  type.def_prop_ro("name", [](const PyCollection& self) { return self.name; })
      .def(
          "include",
          [](const PyCollection& self, const std::string& regex) {
            change(self, [&](Collection& collection) { collection.include(regex); });
          },
          nb::arg("regex"))
      .def(
          "include",
          [](const PyCollection& self, const std::vector<std::string>& regexes) {
            change(self, [&](Collection& collection) {
              for (const std::string& regex : regexes) collection.include(regex);
            });
          },
          nb::arg("regex"))
      .def_prop_rw(
          "include_regex", [](const PyCollection& self) { return self.get().include_regex(); },
          [](const PyCollection& self, const std::vector<std::string>& regexes) {
            self.home->collections().add(rebuild(self.get(), regexes));
            self.home->changed();
          })
      .def_prop_rw(
          "tensor_names",
          [](const PyCollection& self) {
            const auto& names = self.get().tensor_names();
            return std::set<std::string>(names.begin(), names.end());
          },
          &set_tensor_names)
      .def(
          "add_tensor_name",
          [](const PyCollection& self, const std::string& name) {
            change(self, [&](Collection& collection) { collection.add_tensor_name(name); });
          },
          nb::arg("name"))
      .def(
          "remove_tensor_name",
          [](const PyCollection& self, const std::string& name) {
            change(self, [&](Collection& collection) { collection.remove_tensor_name(name); });
          },
          nb::arg("name"))
      .def(
          "matches",
          [](const PyCollection& self, const std::string& name) {
            return self.get().matches(name);
          },
          nb::arg("tensor_name"));
}

void bind_settings(nb::class_<PyCollection>& type) {
  type.def_prop_rw(
          "save_config", [](const PyCollection& self) { return self.get().save_config; },
          [](const PyCollection& self, const std::optional<SaveConfig>& config) {
            change(self, [&](Collection& collection) { collection.save_config = config; });
          },
          nb::arg("value").none(), "A copy: assign it back to change it.")
      .def_prop_rw(
          "reduction_config", [](const PyCollection& self) { return self.get().reduction_config; },
          [](const PyCollection& self, const std::optional<ReductionConfig>& config) {
            change(self, [&](Collection& collection) { collection.reduction_config = config; });
          },
          nb::arg("value").none(), "A copy: assign it back to change it.")
      .def_prop_rw(
          "save_histogram", [](const PyCollection& self) { return self.get().save_histogram; },
          [](const PyCollection& self, bool value) {
            change(self, [&](Collection& collection) { collection.save_histogram = value; });
          });
}

void bind_collection(nb::module_& module) {
  nb::class_<PyCollection> type(
      module, "Collection",
      "A handle on a collection: alone, or (once added to a CollectionSet) on "
      "the one in that set.\n\n"
      "Changes of a collection in a running session reach the next step.");
  type.def(
          "__init__",
          [](PyCollection* self, const std::string& name) {
            auto home = std::make_shared<CollectionHome>();
            home->set.get_or_create(name);
            new (self) PyCollection{std::move(home), name};
          },
          nb::arg("name"))
      .def(nb::init<const PyCollection&>(), nb::arg("source"),
           "A second handle on the same collection.");
  bind_membership(type);
  bind_settings(type);
}

void add_to_set(const PyCollectionSet& self, PyCollection& collection) {
  if (collection.home != self.home) {
    const Collection& from = collection.get();
    self.home->collections().add(rebuild(from, from.include_regex()));
    collection.home = self.home;
  }
  self.home->changed();
}

std::optional<PyCollection> find_in_set(const PyCollectionSet& self, const std::string& name) {
  if (self.home->collections().find(name) == nullptr) return std::nullopt;
  return PyCollection{self.home, name};
}

void bind_collection_set(nb::module_& module) {
  nb::class_<PyCollectionSet>(module, "CollectionSet", "Collections by name.")
      .def(nb::init<>())
      .def(
          "get_or_create",
          [](const PyCollectionSet& self, const std::string& name) {
            self.home->collections().get_or_create(name);
            return PyCollection{self.home, name};
          },
          nb::arg("name"))
      .def("find", &find_in_set, nb::arg("name"))
      .def("add", &add_to_set, nb::arg("collection"),
           "Copies the content in, replacing a same-named one; `collection` then speaks for the "
           "copy.")
      .def("names", [](const PyCollectionSet& self) { return self.home->collections().names(); })
      .def(
          "collections_of",
          [](const PyCollectionSet& self, const std::string& name) {
            return self.home->collections().collections_of(name);
          },
          nb::arg("tensor_name"))
      .def("to_json",
           [](const PyCollectionSet& self) { return self.home->collections().to_json(); })
      .def_static(
          "from_json",
          [](const std::string& json, const std::string& where) {
            PyCollectionSet set;
            set.home->set = CollectionSet::from_json(json, where);
            return set;
          },
          nb::arg("json"), nb::arg("where") = "")
      .def("__contains__",
           [](const PyCollectionSet& self, const std::string& name) {
             return self.home->collections().find(name) != nullptr;
           })
      .def("__len__",
           [](const PyCollectionSet& self) { return self.home->collections().names().size(); });
}

}  // namespace

CollectionSet& CollectionHome::collections() {
  return recorder != nullptr ? recorder->collections() : set;
}

void CollectionHome::changed() {
  if (recorder != nullptr) recorder->invalidate_plan();
}

CollectionSet copy_collections(const CollectionSet& from) {
  CollectionSet copy;
  for (const std::string& name : from.names()) {
    const Collection& collection = *from.find(name);
    copy.add(rebuild(collection, collection.include_regex()));
  }
  return copy;
}

Mode to_mode(int number) {
  const auto mode = number >= 0 && number <= 255 ? mode_from_code(static_cast<std::uint8_t>(number))
                                                 : std::nullopt;
  if (!mode) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("no mode has the number {}: TRAIN is 1, EVAL 2, PREDICT 3, GLOBAL 4", number));
  }
  return *mode;
}

void bind_capture(nb::module_& module) {
  bind_save_config(module);
  bind_reduction_config(module);
  bind_collection(module);
  bind_collection_set(module);
}

}  // namespace tensortap::bindings
