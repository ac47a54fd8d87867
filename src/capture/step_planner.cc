#include "capture/step_planner.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tensortap {
namespace {

// Schedules repeat; a training with more different ones than this plans anew now and then.
constexpr std::size_t kMaxKeptPlans = 32;

constexpr std::string_view kAll = "all";

// The names smdebug's hooks create, and those that ours add. They may be empty: a network without
// biases is no mistake.
constexpr std::array<std::string_view, 34> kBuiltinNames = {"default",
                                                            "all",
                                                            "inputs",
                                                            "outputs",
                                                            "weights",
                                                            "gradients",
                                                            "losses",
                                                            "biases",
                                                            "layers",
                                                            "sm_metrics",
                                                            "optimizer_variables",
                                                            "tensorflow_summaries",
                                                            "metrics",
                                                            "hyperparameters",
                                                            "predictions",
                                                            "labels",
                                                            "feature_importance",
                                                            "average_shap",
                                                            "full_shap",
                                                            "trees",
                                                            "learning_rates",
                                                            "timings",
                                                            "gradient_norms",
                                                            "gradients_before_clipping",
                                                            "update_ratios",
                                                            "loss_scaling",
                                                            "model_inputs",
                                                            "relu_output",
                                                            "relu_input",
                                                            "tanh_input",
                                                            "sigmoid_input",
                                                            "attention_output",
                                                            "embedding_input",
                                                            "normalization_output"};
constexpr std::array<std::string_view, 10> kScalarNames = {
    "losses",         "metrics",        "sm_metrics", "feature_importance", "average_shap",
    "learning_rates", "gradient_norms", "timings",    "loss_scaling",       "update_ratios"};
constexpr std::array<std::string_view, 4> kTrainingOnlyNames = {
    "gradients", "optimizer_variables", "gradients_before_clipping", "update_ratios"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_inference(Mode mode) { return mode == Mode::kEval || mode == Mode::kPredict; }

PlannerDefaults completed(PlannerDefaults defaults) {
  defaults.save_config.fill_missing_from(SaveConfig{});
  return defaults;
}

}  // namespace

StepPlanner::StepPlanner(PlannerDefaults defaults) : defaults_(completed(std::move(defaults))) {}

bool StepPlanner::includes(std::string_view name) const {
  return defaults_.included.contains(name) || defaults_.included.contains(kAll) ||
         (override_ && override_->collections.contains(name));
}

bool StepPlanner::is_overridden(std::string_view name) const {
  return override_ && (override_->collections.empty() || override_->collections.contains(name));
}

bool StepPlanner::count_down_override() {
  if (!override_ || override_->steps_left-- > 0) return false;
  override_.reset();
  return true;
}

void StepPlanner::configure(const CollectionSet& collections) {
  groups_.clear();
  members_.clear();
  tensor_members_.clear();
  kept_.clear();
  kept_current_ = nullptr;
  current_ = &nothing_due_;
  for (const std::string& name : collections.names()) {
    if (!includes(name)) continue;
    const Collection& collection = *collections.find(name);
    const std::uint32_t group = group_of(collection);
    members_.push_back(
        {name, group, flags_of(collection), groups_[group].save_config.can_ever_save()});
  }
  due_groups_.resize(groups_.size());
}

std::uint32_t StepPlanner::group_of(const Collection& collection) {
  Group group{defaults_.save_config, contains(kTrainingOnlyNames, collection.name())};
  if (collection.save_config) {
    collection.save_config->validate();
    group.save_config = *collection.save_config;
    group.save_config.fill_missing_from(defaults_.save_config);
  }
  if (is_overridden(collection.name())) {
    group.save_config = SaveConfig::for_all_modes({.save_interval = 1});
  }
  const auto found = std::find(groups_.begin(), groups_.end(), group);
  const auto index = static_cast<std::uint32_t>(found - groups_.begin());
  if (found == groups_.end()) groups_.push_back(std::move(group));
  return index;
}

std::uint8_t StepPlanner::flags_of(const Collection& collection) const {
  if (contains(kScalarNames, collection.name())) return StepPlan::kStatistics | StepPlan::kRaw;
  const ReductionConfig& reductions =
      collection.reduction_config ? *collection.reduction_config : defaults_.reduction_config;
  std::uint8_t flags = StepPlan::kStatistics;
  if (reductions.save_raw_tensor) flags |= StepPlan::kRaw;
  if (collection.save_histogram) flags |= StepPlan::kHistogram;
  if (is_overridden(collection.name())) {
    flags |= StepPlan::kHistogram;
    if (override_->with_raw) flags |= StepPlan::kRaw;
  }
  return flags;
}

void StepPlanner::require_usable(const CollectionSet& collections) const {
  for (const std::string& name : defaults_.included) {
    const Collection* collection = collections.find(name);
    if (collection == nullptr || contains(kBuiltinNames, name)) continue;
    if (!collection->include_regex().empty() || !collection->tensor_names().empty()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the collection '{}' is to be saved but can match nothing: give it "
                            "include_regex or tensor names before the first step",
                            name));
  }
}

std::vector<std::uint32_t> StepPlanner::members_of(std::span<const std::string> collections) const {
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    if (std::ranges::find(collections, members_[i].name) != collections.end()) result.push_back(i);
  }
  return result;
}

void StepPlanner::add_tensor(std::span<const std::string> collections) {
  tensor_members_.push_back(members_of(collections));
  // The step that is running may want it already.
  if (kept_current_ != nullptr) extend(*kept_current_);
}

void StepPlanner::update_tensor(TensorId tensor, std::span<const std::string> collections) {
  tensor_members_[tensor] = members_of(collections);
  for (const std::unique_ptr<KeptPlan>& kept : kept_) {
    std::vector<std::uint8_t>& flags = kept->plan.flags_;
    if (tensor < flags.size()) flags[tensor] = flags_for(tensor, kept->due_groups);
  }
}

bool StepPlanner::is_ever_due(std::span<const std::string> collections) const {
  const std::vector<std::uint32_t> members = members_of(collections);
  return std::any_of(members.begin(), members.end(),
                     [&](std::uint32_t member) { return members_[member].is_ever_due; });
}

std::uint8_t StepPlanner::flags_for(TensorId tensor,
                                    const std::vector<std::uint8_t>& due_groups) const {
  std::uint8_t flags = 0;
  for (const std::uint32_t member : tensor_members_[tensor]) {
    if (due_groups[members_[member].group] != 0) flags |= members_[member].flags;
  }
  return flags;
}

void StepPlanner::extend(KeptPlan& kept) const {
  std::vector<std::uint8_t>& flags = kept.plan.flags_;
  while (flags.size() < tensor_members_.size()) {
    flags.push_back(flags_for(static_cast<TensorId>(flags.size()), kept.due_groups));
  }
}

const StepPlan& StepPlanner::select(Mode mode, std::int64_t mode_step) {
  bool any_due = false;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const bool due = !(group.is_training_only && is_inference(mode)) &&
                     group.save_config.at(mode)->should_save_step(mode_step);
    due_groups_[i] = due ? 1 : 0;
    any_due = any_due || due;
  }
  if (!any_due) {
    kept_current_ = nullptr;
    current_ = &nothing_due_;
    return *current_;
  }
  kept_current_ = &find_or_keep();
  extend(*kept_current_);
  current_ = &kept_current_->plan;
  return *current_;
}

std::int64_t StepPlanner::next_due(Mode mode, std::int64_t mode_step) const {
  std::int64_t next = SaveConfigMode::kNever;
  for (const Group& group : groups_) {
    if (group.is_training_only && is_inference(mode)) continue;
    next = std::min(next, group.save_config.at(mode)->next_step(mode_step));
  }
  return next;
}

StepPlanner::KeptPlan& StepPlanner::find_or_keep() {
  for (const std::unique_ptr<KeptPlan>& kept : kept_) {
    if (kept->due_groups == due_groups_) return *kept;
  }
  if (kept_.size() == kMaxKeptPlans) kept_.clear();
  auto kept = std::make_unique<KeptPlan>();
  kept->due_groups = due_groups_;
  kept->plan.any_due_ = true;
  kept_.push_back(std::move(kept));
  return *kept_.back();
}

}  // namespace tensortap
