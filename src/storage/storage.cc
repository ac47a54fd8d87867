#include "storage/storage.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/error.h"
#include "storage/registry.h"

namespace tensortap {
namespace {

// The scheme of "scheme:rest", or nothing. A plain path may hold a ':' too, so the part before it
// counts as a scheme only when "//" follows or a backend is registered under it.
std::string_view scheme_of(std::string_view uri) {
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  const std::string_view scheme = uri.substr(0, colon);
  const bool well_formed = std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  if (!well_formed) return {};
  if (uri.substr(colon + 1).starts_with("//")) return scheme;
  for (const StorageDescriptor* descriptor : builtin_storages()) {
    if (descriptor->scheme == scheme) return scheme;
  }
  return {};
}

}  // namespace

std::shared_ptr<Storage> open_storage(std::string_view uri) {
  if (uri.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the path of a run must not be empty");
  }
  std::string_view scheme = scheme_of(uri);
  if (scheme.empty()) scheme = "file";
  std::string known;
  for (const StorageDescriptor* descriptor : builtin_storages()) {
    if (descriptor->scheme == scheme) return descriptor->open(uri);
    known += fmt::format("{}{}:", known.empty() ? "" : ", ", descriptor->scheme);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown storage scheme '{}:' (known: {}): {}", scheme, known, uri));
}

}  // namespace tensortap
