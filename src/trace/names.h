// The names of a segment, both ways. Used by trace/ only; trace_reader.h declares what others may
// use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensortap::trace {

inline constexpr std::string_view kTraceFolder = "trace/";
inline constexpr std::string_view kEndFolder = "end/";
inline constexpr std::string_view kCollectionsFolder = "collections/";
inline constexpr std::string_view kJsonSuffix = ".json";

struct SegmentName {
  std::string worker;
  std::uint32_t sequence = 0;
};
// Nothing when the name is not that of a segment.
std::optional<SegmentName> parse_segment_name(std::string_view name);

// The worker in "end/<worker>.json" and the like.
std::optional<std::string> worker_of(std::string_view name, std::string_view folder);

}  // namespace tensortap::trace
