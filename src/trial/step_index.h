// Which steps a run has, per mode and over all workers: the table behind every question of Trial.
// Kept up to date incrementally: an update costs what is new, not what is there. Used by Trial
// only. Not thread-safe. It knows steps and workers, not tensors.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/mode.h"
#include "trace/trace_source.h"

namespace tensortap::trial {

inline constexpr std::uint32_t kNoOrdinal = std::numeric_limits<std::uint32_t>::max();

// The steps of one mode, by ascending key: the global step in mode GLOBAL (all steps), the mode
// step otherwise.
struct Axis {
  std::vector<std::int64_t> keys;
  std::vector<std::vector<std::uint32_t>>
      ordinals;  // [worker][index of key], kNoOrdinal = has not got it
  std::int64_t complete_key =
      std::numeric_limits<std::int64_t>::min();  // all up to here are complete

  std::optional<std::size_t> find(std::int64_t key) const;
  std::size_t complete_count() const;  // keys[0 .. complete_count()) are complete
};

class StepIndex {
 public:
  // Global steps outside [first, last) are as if they were not there.
  StepIndex(std::optional<std::int64_t> first_step, std::optional<std::int64_t> last_step)
      : first_step_(first_step), last_step_(last_step) {}

  // Takes in new steps and new workers (sorted by name). True when the list of workers changed.
  bool update(const std::vector<const WorkerSource*>& sources);

  const Axis& axis(Mode mode) const { return axes_[slot(mode)]; }
  // Whether the step counts in that mode: of the mode, in the range, and not written anew by a
  // later session.
  bool is_live(std::size_t worker, std::uint32_t ordinal, Mode mode) const {
    return (workers_[worker].live[ordinal] >> slot(mode) & 1) != 0;
  }
  // Ordinals [first, last) that hold all live steps of a worker in a mode.
  std::pair<std::uint32_t, std::uint32_t> ordinal_range(std::size_t worker, Mode mode) const;
  bool has_global_mode() const { return has_global_mode_; }
  // True when no step at all is hidden, so that "recorded" and "visible" mean the same.
  bool hides_nothing() const { return !first_step_ && !last_step_ && superseded_count_ == 0; }
  // How many steps a later session has written anew so far.
  std::uint64_t superseded_count() const { return superseded_count_; }
  bool has_ended() const;

 private:
  static std::size_t slot(Mode mode) { return static_cast<std::size_t>(mode) - 1; }

  // The live steps of one worker in one mode. Ascending in key, global step and ordinal.
  struct Track {
    std::vector<std::int64_t> keys;
    std::vector<std::uint32_t> ordinals;
  };
  struct Worker {
    std::string name;
    const WorkerSource* source = nullptr;
    std::vector<std::uint8_t> live;  // by ordinal: bit slot(mode)
    std::array<Track, kModeCount> tracks;
  };

  bool adopt_workers(const std::vector<const WorkerSource*>& sources);
  void take_new_steps(Worker& worker);
  void supersede(Worker& worker, std::span<const StepInfo> steps, const StepInfo& by);
  void pop(Worker& worker, std::size_t slot);
  void push(Worker& worker, std::size_t slot, std::int64_t key, std::uint32_t ordinal);
  void merge_tail(std::size_t slot);
  void update_completeness();
  std::int64_t last_common_key(std::size_t slot) const;
  std::int64_t newest_global_step(std::size_t slot, std::size_t index) const;

  std::optional<std::int64_t> first_step_;
  std::optional<std::int64_t> last_step_;
  std::vector<Worker> workers_;
  std::array<Axis, kModeCount> axes_;
  std::array<std::int64_t, kModeCount> dirty_from_{};  // keys from here on have to be merged again
  bool has_global_mode_ = false;
  std::uint64_t superseded_count_ = 0;
};

}  // namespace tensortap::trial
