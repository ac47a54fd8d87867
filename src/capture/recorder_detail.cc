// How a Recorder records in full detail for some steps.
#include "capture/recorder.h"
#include "capture/recorder_state.h"

namespace tensortap {

void Recorder::raise_detail(std::span<const std::string> detail_collections,
                            std::int64_t step_count, bool with_raw) {
  if (state_->is_inert()) return;
  const std::lock_guard lock(state_->mutex);
  DetailOverride detail{
      {detail_collections.begin(), detail_collections.end()}, with_raw, step_count};
  // A collection that nobody made names nothing, but `all` is what its name says.
  if (detail.collections.contains("all")) {
    Collection& everything = state_->collections.get_or_create("all");
    if (everything.include_regex().empty()) everything.include(".*");
  }
  state_->planner.set_override(std::move(detail));
  state_->needs_planning = true;
  ++state_->plan_version;
}

}  // namespace tensortap
