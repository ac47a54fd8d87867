// Decides what is due: from the collections that are being saved, the mode and the mode step to one
// flag byte a tensor (smdebug's precedence). Plans are kept by the set of collections that are due,
// so that a step whose set was seen before costs a few comparisons. Used by Recorder. Not
// thread-safe.
//
// - Saved are the included collections; all of them when `all` is included.
// - A collection's own SaveConfig wins; modes it leaves empty, or the whole, are the hook's. Its
// own
//   ReductionConfig replaces the hook's.
// - A tensor gets the union of what its due collections want.
// - `gradients` and `optimizer_variables` are never due in EVAL and PREDICT.
// - Scalar collections (losses, metrics, ...) always keep values, never histograms.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/collection.h"
#include "capture/save_config.h"
#include "capture/step_plan.h"

namespace tensortap {

// For some steps: everything of these collections at every step, whatever anything else says.
struct DetailOverride {
  std::set<std::string, std::less<>> collections;  // empty: those that are being saved
  bool with_raw = false;
  std::int64_t steps_left = 0;
};

// What the hook says for collections that say nothing themselves.
struct PlannerDefaults {
  SaveConfig save_config;
  ReductionConfig reduction_config;
  std::set<std::string, std::less<>> included;
};

class StepPlanner {
 public:
  explicit StepPlanner(PlannerDefaults defaults);

  // These count from the next configure() on. count_down_override() is called before each step;
  // true when the override has just ended.
  void set_override(std::optional<DetailOverride> detail) { override_ = std::move(detail); }
  const std::optional<DetailOverride>& override_detail() const { return override_; }
  bool count_down_override();
  // Reads the configuration of the collections and forgets plans and tensors.
  void configure(const CollectionSet& collections);
  // Throws Error(kInvalidArgument) naming a custom collection that was listed for saving but can
  // never match: it has neither a regex nor tensor names.
  void require_usable(const CollectionSet& collections) const;

  // Tensors in the order of their ids, with the names of all their collections.
  void add_tensor(std::span<const std::string> collections);
  // Replaces a tensor's collections; kept plans forget it.
  void update_tensor(TensorId tensor, std::span<const std::string> collections);
  // Whether some step of some mode could want a tensor of these collections.
  bool is_ever_due(std::span<const std::string> collections) const;

  // Valid until the next select or configure; the tensors added meanwhile are in it.
  const StepPlan& select(Mode mode, std::int64_t mode_step);
  const StepPlan& current() const { return *current_; }
  // The first mode step from `mode_step` on at which anything is due; SaveConfigMode::kNever.
  std::int64_t next_due(Mode mode, std::int64_t mode_step) const;

 private:
  // Collections that are always due together.
  struct Group {
    SaveConfig save_config;
    bool is_training_only = false;
    bool operator==(const Group&) const = default;
  };
  struct Member {
    std::string name;
    std::uint32_t group = 0;
    std::uint8_t flags = 0;
    bool is_ever_due = false;
  };
  struct KeptPlan {
    std::vector<std::uint8_t> due_groups;
    StepPlan plan;
  };

  bool includes(std::string_view name) const;
  bool is_overridden(std::string_view name) const;
  std::uint32_t group_of(const Collection& collection);
  std::uint8_t flags_of(const Collection& collection) const;
  std::vector<std::uint32_t> members_of(std::span<const std::string> collections) const;
  std::uint8_t flags_for(TensorId tensor, const std::vector<std::uint8_t>& due_groups) const;
  void extend(KeptPlan& kept) const;
  KeptPlan& find_or_keep();

  const PlannerDefaults defaults_;
  std::optional<DetailOverride> override_;
  std::vector<Group> groups_;
  std::vector<Member> members_;                             // the collections being saved, by name
  std::vector<std::vector<std::uint32_t>> tensor_members_;  // by tensor: indices of members_
  std::vector<std::unique_ptr<KeptPlan>> kept_;
  KeptPlan* kept_current_ = nullptr;
  std::vector<std::uint8_t> due_groups_;  // of the step being planned; reused
  const StepPlan nothing_due_;
  const StepPlan* current_ = &nothing_due_;
};

}  // namespace tensortap
