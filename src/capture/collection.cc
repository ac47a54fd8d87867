#include "capture/collection.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

constexpr std::array<std::string_view, 6> kReductions = {"min", "max",      "mean",
                                                         "std", "variance", "sum"};
constexpr std::array<std::string_view, 2> kNorms = {"l1", "l2"};
// smdebug took "prod" and documented "median"; neither follows from what one pass keeps.
constexpr std::array<std::string_view, 2> kNotComputed = {"prod", "median"};

constexpr std::string_view kValidReductions =
    "min, max, mean, std, variance, sum, l1_norm, l2_norm, and each with the prefix abs_";

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string canonical_reduction(std::string_view token) {
  constexpr std::string_view kAbsPrefix = "abs_";
  constexpr std::string_view kNormSuffix = "_norm";
  std::string_view base = token;
  const bool is_abs = base.starts_with(kAbsPrefix);
  if (is_abs) base.remove_prefix(kAbsPrefix.size());
  if (contains(kReductions, base)) return std::string(token);

  std::string_view norm = base;
  if (norm.ends_with(kNormSuffix)) norm.remove_suffix(kNormSuffix.size());
  if (contains(kNorms, norm)) return fmt::format("{}{}_norm", is_abs ? kAbsPrefix : "", norm);

  if (contains(kNotComputed, base)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the reduction '{}' is not computed while training (valid: {}); "
                            "save_raw_tensor=True keeps the values, and a trial computes it",
                            token, kValidReductions));
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown reduction '{}' (valid: {})", token, kValidReductions));
}

}  // namespace

std::vector<std::string> ReductionConfig::parse_reductions(std::string_view comma_separated) {
  std::vector<std::string> result;
  for (const std::string& token : split_list(comma_separated)) {
    std::string name = canonical_reduction(token);
    if (std::find(result.begin(), result.end(), name) == result.end()) {
      result.push_back(std::move(name));
    }
  }
  return result;
}

void Collection::include(std::string_view regex) {
  if (std::find(patterns_.begin(), patterns_.end(), regex) != patterns_.end()) return;
  regexes_.emplace_back(regex);
  patterns_.emplace_back(regex);
}

void Collection::add_tensor_name(std::string_view tensor_name) {
  tensor_names_.emplace(tensor_name);
}

void Collection::remove_tensor_name(std::string_view tensor_name) {
  const auto found = tensor_names_.find(tensor_name);
  if (found != tensor_names_.end()) tensor_names_.erase(found);
}

bool Collection::matches(std::string_view tensor_name) const {
  return tensor_names_.contains(tensor_name) ||
         std::any_of(regexes_.begin(), regexes_.end(),
                     [&](const Regex& regex) { return regex.search(tensor_name); });
}

Collection& CollectionSet::get_or_create(std::string_view name) {
  const auto found = collections_.find(name);
  if (found != collections_.end()) return *found->second;
  auto created = std::make_unique<Collection>(std::string(name));
  return *collections_.emplace(std::string(name), std::move(created)).first->second;
}

Collection* CollectionSet::find(std::string_view name) {
  const auto found = collections_.find(name);
  return found == collections_.end() ? nullptr : found->second.get();
}

const Collection* CollectionSet::find(std::string_view name) const {
  const auto found = collections_.find(name);
  return found == collections_.end() ? nullptr : found->second.get();
}

void CollectionSet::add(Collection collection) {
  std::string name = collection.name();
  // Into the object that is there already, so that references handed out stay good.
  const auto found = collections_.find(name);
  if (found != collections_.end()) {
    *found->second = std::move(collection);
  } else {
    collections_.emplace(std::move(name), std::make_unique<Collection>(std::move(collection)));
  }
}

std::vector<std::string> CollectionSet::names() const {
  std::vector<std::string> result;
  result.reserve(collections_.size());
  for (const auto& [name, collection] : collections_) result.push_back(name);
  return result;
}

std::vector<std::string> CollectionSet::collections_of(std::string_view tensor_name) const {
  std::vector<std::string> result;
  for (const auto& [name, collection] : collections_) {
    if (collection->matches(tensor_name)) result.push_back(name);
  }
  return result;
}

}  // namespace tensortap
