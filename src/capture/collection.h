// Collections: named groups of tensors, by regex or by name, with their own save and reduction
// settings (smdebug's Collection and CollectionManager). Matching is Python's re.search. Used by
// Recorder and, read back from collections/<worker>.json, by trial/. Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "capture/save_config.h"
#include "tensor/statistics.h"

namespace tensortap {

// What of a tensor is kept. Statistics cost one pass and are always there; raw values are asked
// for.
struct ReductionConfig {
  bool save_raw_tensor = false;
  bool save_shape = false;  // accepted as in smdebug: the shape is always recorded
  // The reductions the user named, as tokens: "mean", "abs_mean", "l1_norm", "abs_l2_norm". Kept
  // for reading back; every statistic is recorded whatever stands here.
  std::vector<std::string> reductions = {};

  // Parses "min, abs_mean, l2_norm"; throws Error(kInvalidArgument) naming the valid tokens.
  static std::vector<std::string> parse_reductions(std::string_view comma_separated);
  bool operator==(const ReductionConfig&) const = default;
};

class Collection {
 public:
  explicit Collection(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Throws Error(kInvalidArgument) when the pattern does not compile.
  void include(std::string_view regex);
  const std::vector<std::string>& include_regex() const { return patterns_; }
  void add_tensor_name(std::string_view tensor_name);
  void remove_tensor_name(std::string_view tensor_name);
  const std::set<std::string, std::less<>>& tensor_names() const { return tensor_names_; }
  // By name or by any regex.
  bool matches(std::string_view tensor_name) const;

  std::optional<SaveConfig> save_config;
  std::optional<ReductionConfig> reduction_config;
  bool save_histogram = true;

 private:
  std::string name_;
  std::vector<std::string> patterns_;
  std::vector<Regex> regexes_;
  std::set<std::string, std::less<>> tensor_names_;
};

// All collections of a hook, by name, in a stable order.
class CollectionSet {
 public:
  // Creates an empty one when absent.
  Collection& get_or_create(std::string_view name);
  Collection* find(std::string_view name);
  const Collection* find(std::string_view name) const;
  void add(Collection collection);  // replaces a same-named one
  std::vector<std::string> names() const;
  std::size_t size() const { return collections_.size(); }
  // Sorted by name.
  std::vector<std::string> collections_of(std::string_view tensor_name) const;

  // collections/<worker>.json, one object; docs/trace-format.md has the schema:
  //   {"version": 1, "collections": {NAME: {
  //     "include_regex": [string], "tensor_names": [string, sorted],
  //     "save_config": null | {"TRAIN" | "EVAL" | "PREDICT" | "GLOBAL":
  //       null | {"save_interval": int, "start_step": int, "end_step": int | null,
  //               "save_steps": [int]}},
  //     "reduction_config": null | {"save_raw_tensor": bool, "save_shape": bool,
  //                                 "reductions": [string]},
  //     "save_histogram": bool}}}
  // Reading: absent keys take their defaults, unknown ones are ignored, "reductions" may be one
  // comma-separated string, a wrong type is corruption.
  std::string to_json() const;
  // Throws Error(kCorrupt), or Error(kUnsupported) for a newer version, with `where` last.
  static CollectionSet from_json(std::string_view json, std::string_view where);

 private:
  std::map<std::string, std::unique_ptr<Collection>, std::less<>> collections_;
};

}  // namespace tensortap
