#include "trace/names.h"

#include <charconv>

#include <fmt/format.h>

#include "trace/trace_reader.h"

namespace tensortap {
namespace {

constexpr std::string_view kSegmentSuffix = ".ttap";

}  // namespace

std::string segment_name(const std::string& worker, std::uint32_t sequence) {
  return fmt::format("{}{}/{:08}{}", trace::kTraceFolder, worker, sequence, kSegmentSuffix);
}

std::string end_mark_name(const std::string& worker) {
  return fmt::format("{}{}{}", trace::kEndFolder, worker, trace::kJsonSuffix);
}

std::string collections_name(const std::string& worker) {
  return fmt::format("{}{}{}", trace::kCollectionsFolder, worker, trace::kJsonSuffix);
}

namespace trace {

std::optional<SegmentName> parse_segment_name(std::string_view name) {
  if (!name.starts_with(kTraceFolder) || !name.ends_with(kSegmentSuffix)) return std::nullopt;
  name.remove_prefix(kTraceFolder.size());
  name.remove_suffix(kSegmentSuffix.size());
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  const std::string_view digits = name.substr(slash + 1);
  SegmentName out;
  out.worker = name.substr(0, slash);
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, out.sequence);
  if (error != std::errc() || stop != end || digits.size() < 8) return std::nullopt;
  return out;
}

std::optional<std::string> worker_of(std::string_view name, std::string_view folder) {
  if (!name.starts_with(folder) || !name.ends_with(kJsonSuffix)) return std::nullopt;
  name.remove_prefix(folder.size());
  name.remove_suffix(kJsonSuffix.size());
  if (name.empty() || name.find('/') != std::string_view::npos) return std::nullopt;
  return std::string(name);
}

}  // namespace trace
}  // namespace tensortap
