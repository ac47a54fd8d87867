#include "capture/save_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace tensortap {
namespace {

std::size_t index_of(Mode mode) { return static_cast<std::size_t>(mode) - 1; }

void require_not_negative(std::int64_t value, const char* what) {
  if (value >= 0) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} must not be negative: {}", what, value));
}

}  // namespace

bool SaveConfigMode::should_save_step(std::int64_t mode_step) const {
  if (std::find(save_steps.begin(), save_steps.end(), mode_step) != save_steps.end()) return true;
  if (mode_step < start_step || (end_step && mode_step >= *end_step)) return false;
  return save_interval > 0 && mode_step % save_interval == 0;
}

bool SaveConfigMode::can_ever_save() const {
  if (!save_steps.empty()) return true;
  if (save_interval <= 0) return false;
  if (!end_step) return true;
  // The first multiple of the interval that is not before the start, without overflow near the end
  // of the range.
  const std::int64_t remainder = start_step % save_interval;
  if (remainder == 0) return start_step < *end_step;
  return start_step < *end_step && save_interval - remainder < *end_step - start_step;
}

std::int64_t SaveConfigMode::next_step(std::int64_t mode_step) const {
  std::int64_t next = kNever;
  for (const std::int64_t step : save_steps) {
    if (step >= mode_step) next = std::min(next, step);
  }
  if (save_interval <= 0) return next;
  const std::int64_t from = std::max(mode_step, start_step);
  const std::int64_t past = from % save_interval;
  const std::int64_t wait = past == 0 ? 0 : save_interval - past;
  if (from > kNever - wait || (end_step && from + wait >= *end_step)) return next;
  return std::min(next, from + wait);
}

void SaveConfigMode::validate() const {
  if (save_interval < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("save_interval must be at least 1: {} (to save nothing, set end_step=0)",
                    save_interval));
  }
  require_not_negative(start_step, "start_step");
  if (end_step) require_not_negative(*end_step, "end_step");
  for (const std::int64_t step : save_steps) require_not_negative(step, "a step in save_steps");
}

SaveConfig SaveConfig::for_all_modes(const SaveConfigMode& config) {
  SaveConfig result;
  result.modes.fill(config);
  return result;
}

const std::optional<SaveConfigMode>& SaveConfig::at(Mode mode) const {
  return modes.at(index_of(mode));
}

std::optional<SaveConfigMode>& SaveConfig::at(Mode mode) { return modes.at(index_of(mode)); }

void SaveConfig::fill_missing_from(const SaveConfig& other) {
  for (std::size_t i = 0; i < modes.size(); ++i) {
    if (!modes[i]) modes[i] = other.modes[i] ? other.modes[i] : SaveConfigMode{};
  }
}

void SaveConfig::validate() const {
  for (const std::optional<SaveConfigMode>& mode : modes) {
    if (mode) mode->validate();
  }
}

bool SaveConfig::can_ever_save() const {
  return std::any_of(modes.begin(), modes.end(), [](const std::optional<SaveConfigMode>& mode) {
    return mode && mode->can_ever_save();
  });
}

}  // namespace tensortap
