#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "capture/collection.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kCollectionsVersion = 1;
constexpr std::array<Mode, kModeCount> kModes = {Mode::kTrain, Mode::kEval, Mode::kPredict,
                                                 Mode::kGlobal};

void write_strings(JsonWriter& out, std::string_view key, const auto& strings) {
  out.key(key).begin_array();
  for (const std::string& text : strings) out.value(text);
  out.end_array();
}

void write_save_config_mode(JsonWriter& out, const std::optional<SaveConfigMode>& config) {
  if (!config) {
    out.null();
    return;
  }
  out.begin_object();
  out.field("save_interval", config->save_interval).field("start_step", config->start_step);
  out.key("end_step");
  config->end_step ? out.value(*config->end_step) : out.null();
  out.key("save_steps").begin_array();
  for (const std::int64_t step : config->save_steps) out.value(step);
  out.end_array().end_object();
}

void write_save_config(JsonWriter& out, const std::optional<SaveConfig>& config) {
  out.key("save_config");
  if (!config) {
    out.null();
    return;
  }
  out.begin_object();
  for (const Mode mode : kModes) {
    out.key(mode_name(mode));
    write_save_config_mode(out, config->at(mode));
  }
  out.end_object();
}

void write_reduction_config(JsonWriter& out, const std::optional<ReductionConfig>& config) {
  out.key("reduction_config");
  if (!config) {
    out.null();
    return;
  }
  out.begin_object();
  out.field("save_raw_tensor", config->save_raw_tensor).field("save_shape", config->save_shape);
  write_strings(out, "reductions", config->reductions);
  out.end_object();
}

// What is wrong inside the document; from_json adds where it stands.
[[noreturn]] void throw_wrong(std::string_view key, std::string_view wanted) {
  throw Error(ErrorCode::kCorrupt, fmt::format("'{}' is not {}", key, wanted));
}

const Json* find_not_null(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json* find_object(const Json& object, const char* key) {
  const Json* value = find_not_null(object, key);
  if (value != nullptr && !value->is_object()) throw_wrong(key, "an object");
  return value;
}

void read_bool(const Json& object, const char* key, bool& out) {
  const Json* value = find_not_null(object, key);
  if (value == nullptr) return;
  if (!value->is_boolean()) throw_wrong(key, "true or false");
  out = value->get<bool>();
}

std::int64_t to_integer(const Json& value, const char* key) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (!fits) throw_wrong(key, "a whole number");
  return value.get<std::int64_t>();
}

void read_integer(const Json& object, const char* key, std::int64_t& out) {
  const Json* value = find_not_null(object, key);
  if (value != nullptr) out = to_integer(*value, key);
}

void for_each_string(const Json& object, const char* key, const auto& body) {
  const Json* value = find_not_null(object, key);
  if (value == nullptr) return;
  if (!value->is_array()) throw_wrong(key, "a list of strings");
  for (const Json& item : *value) {
    if (!item.is_string()) throw_wrong(key, "a list of strings");
    body(item.get_ref<const std::string&>());
  }
}

SaveConfigMode read_save_config_mode(const Json& object) {
  SaveConfigMode config;
  read_integer(object, "save_interval", config.save_interval);
  read_integer(object, "start_step", config.start_step);
  if (const Json* end = find_not_null(object, "end_step")) {
    config.end_step = to_integer(*end, "end_step");
  }
  if (const Json* steps = find_not_null(object, "save_steps")) {
    if (!steps->is_array()) throw_wrong("save_steps", "a list of whole numbers");
    for (const Json& step : *steps) config.save_steps.push_back(to_integer(step, "save_steps"));
  }
  config.validate();
  return config;
}

std::optional<SaveConfig> read_save_config(const Json& collection) {
  const Json* object = find_object(collection, "save_config");
  if (object == nullptr) return std::nullopt;
  SaveConfig config;
  for (const Mode mode : kModes) {
    const std::string key(mode_name(mode));
    const Json* mode_object = find_object(*object, key.c_str());
    if (mode_object != nullptr) config.at(mode) = read_save_config_mode(*mode_object);
  }
  return config;
}

std::optional<ReductionConfig> read_reduction_config(const Json& collection) {
  const Json* object = find_object(collection, "reduction_config");
  if (object == nullptr) return std::nullopt;
  ReductionConfig config;
  read_bool(*object, "save_raw_tensor", config.save_raw_tensor);
  read_bool(*object, "save_shape", config.save_shape);
  const Json* reductions = find_not_null(*object, "reductions");
  if (reductions != nullptr && reductions->is_string()) {
    config.reductions =
        ReductionConfig::parse_reductions(reductions->get_ref<const std::string&>());
  } else {
    for_each_string(*object, "reductions",
                    [&](const std::string& token) { config.reductions.push_back(token); });
  }
  return config;
}

Collection read_collection(const std::string& name, const Json& object) {
  if (!object.is_object()) throw_wrong(name, "an object");
  Collection collection(name);
  for_each_string(object, "include_regex",
                  [&](const std::string& regex) { collection.include(regex); });
  for_each_string(object, "tensor_names",
                  [&](const std::string& tensor) { collection.add_tensor_name(tensor); });
  collection.save_config = read_save_config(object);
  collection.reduction_config = read_reduction_config(object);
  read_bool(object, "save_histogram", collection.save_histogram);
  return collection;
}

CollectionSet read_document(const Json& document) {
  if (!document.is_object()) {
    throw Error(ErrorCode::kCorrupt, "a collections file must hold one JSON object");
  }
  std::int64_t version = kCollectionsVersion;
  read_integer(document, "version", version);
  if (version > kCollectionsVersion) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("a collections file of version {}, newer than this Tensortap reads ({})",
                    version, kCollectionsVersion));
  }
  const Json* collections = find_object(document, "collections");
  if (collections == nullptr) throw Error(ErrorCode::kCorrupt, "'collections' is missing");
  CollectionSet result;
  for (const auto& [name, object] : collections->items()) {
    result.add(read_collection(name, object));
  }
  return result;
}

}  // namespace

std::string CollectionSet::to_json() const {
  JsonWriter out(1);
  out.begin_object().field("version", kCollectionsVersion).key("collections").begin_object();
  for (const auto& [name, collection] : collections_) {
    out.key(name).begin_object();
    write_strings(out, "include_regex", collection->include_regex());
    write_strings(out, "tensor_names", collection->tensor_names());
    write_save_config(out, collection->save_config);
    write_reduction_config(out, collection->reduction_config);
    out.field("save_histogram", collection->save_histogram).end_object();
  }
  out.end_object().end_object();
  return out.text();
}

CollectionSet CollectionSet::from_json(std::string_view json, std::string_view where) {
  try {
    return read_document(Json::parse(json));
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("not a JSON document ({}): {}", error.what(), where));
  } catch (const Error& error) {
    // A regex or a step that a user may not give is, in a file that we wrote, damage.
    const ErrorCode code =
        error.code() == ErrorCode::kUnsupported ? error.code() : ErrorCode::kCorrupt;
    throw Error(code, fmt::format("{}: {}", error.what(), where));
  }
}

}  // namespace tensortap
