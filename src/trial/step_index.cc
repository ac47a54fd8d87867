#include "trial/step_index.h"

#include <algorithm>
#include <utility>

namespace tensortap::trial {
namespace {

constexpr std::int64_t kFirstKey = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kClean = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kGlobalSlot = static_cast<std::size_t>(Mode::kGlobal) - 1;

std::ptrdiff_t index_from(const std::vector<std::int64_t>& keys, std::int64_t from) {
  return std::lower_bound(keys.begin(), keys.end(), from) - keys.begin();
}

}  // namespace

std::optional<std::size_t> Axis::find(std::int64_t key) const {
  const auto index = static_cast<std::size_t>(index_from(keys, key));
  if (index == keys.size() || keys[index] != key) return std::nullopt;
  return index;
}

std::size_t Axis::complete_count() const {
  return static_cast<std::size_t>(std::upper_bound(keys.begin(), keys.end(), complete_key) -
                                  keys.begin());
}

bool StepIndex::update(const std::vector<const WorkerSource*>& sources) {
  dirty_from_.fill(kClean);
  const bool has_new_workers = adopt_workers(sources);
  if (has_new_workers) dirty_from_.fill(kFirstKey);
  for (Worker& worker : workers_) take_new_steps(worker);
  for (std::size_t slot = 0; slot < kModeCount; ++slot) {
    if (dirty_from_[slot] != kClean) merge_tail(slot);
  }
  update_completeness();
  return has_new_workers;
}

bool StepIndex::adopt_workers(const std::vector<const WorkerSource*>& sources) {
  const bool is_same = std::equal(
      workers_.begin(), workers_.end(), sources.begin(), sources.end(),
      [](const Worker& known, const WorkerSource* source) { return known.name == source->name(); });
  std::vector<Worker> adopted;
  if (!is_same) adopted.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (is_same) {
      workers_[i].source = sources[i];
      continue;
    }
    const auto known = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return worker.name == sources[i]->name();
    });
    adopted.push_back(known != workers_.end() ? std::move(*known) : Worker{});
    adopted.back().name = sources[i]->name();
    adopted.back().source = sources[i];
  }
  if (!is_same) workers_ = std::move(adopted);
  return !is_same;
}

void StepIndex::take_new_steps(Worker& worker) {
  const std::span<const StepInfo> steps = worker.source->steps();
  for (std::size_t i = worker.live.size(); i < steps.size(); ++i) {
    const StepInfo& info = steps[i];
    const auto ordinal = static_cast<std::uint32_t>(i);
    supersede(worker, steps, info);
    worker.live.push_back(0);
    if (first_step_ && info.step < *first_step_) continue;
    if (last_step_ && info.step >= *last_step_) continue;
    push(worker, kGlobalSlot, info.step, ordinal);
    if (info.mode == Mode::kGlobal) {
      has_global_mode_ = true;
    } else {
      push(worker, slot(info.mode), info.mode_step, ordinal);
    }
  }
}

// Steps ascend within a session. One that does not lie beyond what is there starts a resumed
// stretch: all from it on was written by a session that the training went back behind.
void StepIndex::supersede(Worker& worker, std::span<const StepInfo> steps, const StepInfo& by) {
  for (std::size_t slot = 0; slot < kModeCount; ++slot) {
    const Track& track = worker.tracks[slot];
    while (!track.keys.empty() && steps[track.ordinals.back()].step >= by.step) pop(worker, slot);
  }
  const std::size_t own = slot(by.mode);
  if (own == kGlobalSlot) return;
  const Track& track = worker.tracks[own];
  while (!track.keys.empty() && track.keys.back() >= by.mode_step) pop(worker, own);
}

void StepIndex::pop(Worker& worker, std::size_t slot) {
  Track& track = worker.tracks[slot];
  const std::int64_t key = track.keys.back();
  worker.live[track.ordinals.back()] &= static_cast<std::uint8_t>(~(1u << slot));
  track.keys.pop_back();
  track.ordinals.pop_back();
  ++superseded_count_;
  dirty_from_[slot] = std::min(dirty_from_[slot], key);
  if (key == kFirstKey) return;
  axes_[slot].complete_key = std::min(axes_[slot].complete_key, key - 1);
}

void StepIndex::push(Worker& worker, std::size_t slot, std::int64_t key, std::uint32_t ordinal) {
  Track& track = worker.tracks[slot];
  track.keys.push_back(key);
  track.ordinals.push_back(ordinal);
  worker.live[ordinal] |= static_cast<std::uint8_t>(1u << slot);
  dirty_from_[slot] = std::min(dirty_from_[slot], key);
}

void StepIndex::merge_tail(std::size_t slot) {
  Axis& axis = axes_[slot];
  const std::int64_t from = dirty_from_[slot];
  const auto kept = static_cast<std::size_t>(index_from(axis.keys, from));
  axis.keys.resize(kept);
  axis.ordinals.resize(workers_.size());
  std::vector<std::size_t> cursors;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    axis.ordinals[w].resize(kept);
    cursors.push_back(static_cast<std::size_t>(index_from(workers_[w].tracks[slot].keys, from)));
  }
  while (true) {
    std::int64_t key = kClean;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const Track& track = workers_[w].tracks[slot];
      if (cursors[w] < track.keys.size()) key = std::min(key, track.keys[cursors[w]]);
    }
    if (key == kClean) return;
    axis.keys.push_back(key);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const Track& track = workers_[w].tracks[slot];
      const bool has_it = cursors[w] < track.keys.size() && track.keys[cursors[w]] == key;
      axis.ordinals[w].push_back(has_it ? track.ordinals[cursors[w]++] : kNoOrdinal);
    }
  }
}

// A step is complete when all workers have written it, or a later one is complete, or nobody is
// left to write. Once complete it stays so (unless a resume overwrites it): a worker that turns up
// late does not take steps back.
void StepIndex::update_completeness() {
  const auto raise = [&](std::size_t slot, std::int64_t key) {
    axes_[slot].complete_key = std::max(axes_[slot].complete_key, key);
  };
  for (std::size_t slot = 0; slot < kModeCount; ++slot) {
    const Axis& axis = axes_[slot];
    if (axis.keys.empty()) continue;
    raise(slot, has_ended() ? axis.keys.back() : last_common_key(slot));
  }
  const std::int64_t complete_global = axes_[kGlobalSlot].complete_key;
  for (std::size_t slot = 0; slot < kGlobalSlot; ++slot) {
    const Axis& axis = axes_[slot];
    std::size_t low = axis.complete_count();
    std::size_t high = axis.keys.size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (newest_global_step(slot, middle) <= complete_global) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low > 0) raise(slot, axis.keys[low - 1]);
  }
}

// The newest key that every worker still at work has; kFirstKey when there is none.
std::int64_t StepIndex::last_common_key(std::size_t slot) const {
  std::int64_t bound = kClean;
  for (const Worker& worker : workers_) {
    if (worker.source->has_ended()) continue;
    const std::vector<std::int64_t>& keys = worker.tracks[slot].keys;
    if (keys.empty()) return kFirstKey;
    bound = std::min(bound, keys.back());
  }
  const Axis& axis = axes_[slot];
  auto index = std::upper_bound(axis.keys.begin(), axis.keys.end(), bound) - axis.keys.begin();
  while (index-- > 0) {
    const auto at = static_cast<std::size_t>(index);
    bool is_common = true;
    for (std::size_t w = 0; w < workers_.size() && is_common; ++w) {
      is_common = workers_[w].source->has_ended() || axis.ordinals[w][at] != kNoOrdinal;
    }
    if (is_common || axis.keys[at] <= axis.complete_key) return axis.keys[at];
  }
  return kFirstKey;
}

std::int64_t StepIndex::newest_global_step(std::size_t slot, std::size_t index) const {
  std::int64_t newest = kFirstKey;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const std::uint32_t ordinal = axes_[slot].ordinals[w][index];
    if (ordinal == kNoOrdinal) continue;
    newest = std::max(newest, workers_[w].source->steps()[ordinal].step);
  }
  return newest;
}

std::pair<std::uint32_t, std::uint32_t> StepIndex::ordinal_range(std::size_t worker,
                                                                 Mode mode) const {
  const Track& track = workers_[worker].tracks[slot(mode)];
  if (track.ordinals.empty()) return {0, 0};
  return {track.ordinals.front(), track.ordinals.back() + 1};
}

bool StepIndex::has_ended() const {
  return !workers_.empty() && std::all_of(workers_.begin(), workers_.end(),
                                          [](const Worker& w) { return w.source->has_ended(); });
}

}  // namespace tensortap::trial
