// When a collection is saved: smdebug's SaveConfig and SaveConfigMode. A mode step s is due when
// save_steps holds it, or when start_step <= s < end_step and s % save_interval == 0 (a union; the
// modulus counts from 0, not from start_step). Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/mode.h"

namespace tensortap {

struct SaveConfigMode {
  std::int64_t save_interval = 500;
  std::int64_t start_step = 0;
  std::optional<std::int64_t> end_step = std::nullopt;  // exclusive; nothing = open
  std::vector<std::int64_t> save_steps = {};            // in any order

  bool should_save_step(std::int64_t mode_step) const;
  // False when no step at all is due (end_step = 0 is smdebug's way to switch a collection off).
  bool can_ever_save() const;
  // The first step from `mode_step` on that is due; kNever when none is.
  std::int64_t next_step(std::int64_t mode_step) const;
  static constexpr std::int64_t kNever = INT64_MAX;
  // Throws Error(kInvalidArgument) unless save_interval >= 1 and no step is negative.
  void validate() const;
  bool operator==(const SaveConfigMode&) const = default;
};

// One SaveConfigMode for each mode; a mode left empty takes what the hook has.
struct SaveConfig {
  std::array<std::optional<SaveConfigMode>, kModeCount> modes;  // index: mode number - 1

  static SaveConfig for_all_modes(const SaveConfigMode& config);
  const std::optional<SaveConfigMode>& at(Mode mode) const;
  std::optional<SaveConfigMode>& at(Mode mode);
  // Modes empty in both get the default SaveConfigMode.
  void fill_missing_from(const SaveConfig& other);
  void validate() const;
  bool can_ever_save() const;
  bool operator==(const SaveConfig&) const = default;
};

}  // namespace tensortap
