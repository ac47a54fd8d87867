// SimilarAcrossRuns: tensors that differ from those of another run, or do not.
#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/closeness.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"
#include "rules/tensor_selector.h"
#include "rules/values.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "SimilarAcrossRuns";
constexpr std::array<std::string_view, 2> kDirections = {"different", "similar"};
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

constexpr std::string_view kDoc =
    R"(Compares each tensor with the tensor of the same name in another run, at the same step of the
same mode, and of the same worker where the other run has one of that name. Fires when the shapes
differ or some element does: |other - this| > atol + rtol |this|; NaN is equal to NaN. With `fire_on`
similar it fires when they do not differ. Of several other runs one is enough.

With raw values in both runs the comparison is exact. Without them the statistics are compared within
the same tolerances, which tensors that are the same always pass.

What the other run does not have is left out, and does not count as seen. When it is still being
written, `wait_seconds` are waited for the step, then it is left out.

Looks at all tensors, or at the union of `collection_names` and `tensor_regex`, at steps of every
mode. Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name; `rtol`, `atol`, `fire_on` and `wait_seconds` are
additions.)";

constexpr std::array<ParameterDescriptor, 13> kParameters = {{
    {"other_trials", ParameterType::kList, "",
     "Paths of the runs to compare with, separated by commas; this, other_trial or other_trial_<n> "
     "must be given."},
    {"other_trial", ParameterType::kString, "", "Path of one run to compare with."},
    {"other_trial_0", ParameterType::kString, "", "As other_trial, as SageMaker sends it."},
    {"other_trial_1", ParameterType::kString, "", "A second one."},
    {"other_trial_2", ParameterType::kString, "", "A third one."},
    {"other_trial_3", ParameterType::kString, "", "A fourth one."},
    {"collection_names", ParameterType::kList, "",
     "Collections to look at, separated by commas; with tensor_regex their union, with neither all "
     "tensors."},
    {"tensor_regex", ParameterType::kList, "",
     "Patterns of tensor names to look at, separated by commas."},
    {"rtol", ParameterType::kFloat, "1e-5", "Tolerance relative to this run's value.", 0.0},
    {"atol", ParameterType::kFloat, "1e-8", "Tolerance in the tensor's unit.", 0.0},
    {"fire_on", ParameterType::kString, "different", "different or similar."},
    {"wait_seconds", ParameterType::kFloat, "0",
     "How long a step is waited for that the other run has yet to write.", 0.0, 86400.0},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "another seed, another order of the data, or other data",
    "operations that are not deterministic",
    "other versions of libraries, or another device",
    "a change in the code or in its settings",
};

class SimilarAcrossRuns : public Rule {
 public:
  explicit SimilarAcrossRuns(const Parameters& parameters)
      : selector_(parameters.get_list("collection_names"), parameters.get_list("tensor_regex")),
        tolerance_{parameters.get_float("rtol"), parameters.get_float("atol"), true},
        fires_on_similar_(choice_of(kName, parameters, "fire_on", kDirections) == 1),
        wait_ns_(static_cast<std::int64_t>(parameters.get_float("wait_seconds") * kNsPerSecond)),
        policy_(worker_policy_of(kName, parameters)) {
    for (const std::string& path : paths_of(parameters)) others_.push_back(Trial::open(path));
    if (others_.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rule {}: other_trials must say which run to compare with", kName));
    }
  }

  void check(const StepView& step, std::vector<Finding>& findings) override {
    std::uint64_t count = 0;
    for (const std::shared_ptr<Trial>& other : others_) {
      if (!has_step(*other, step)) continue;
      for (const WorkerStep& worker : judged_workers(step, policy_)) {
        for (const StatisticsRow* row : selected_rows(worker)) {
          count += compare(step, worker, *row, *other, findings) ? 1 : 0;
        }
      }
    }
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = compared_.size();
    return coverage;
  }
  std::string selection() const override {
    return selector_.description() + " that the other run has at the same step";
  }

 private:
  static std::vector<std::string> paths_of(const Parameters& parameters) {
    std::vector<std::string> paths = parameters.get_list("other_trials");
    for (const char* name :
         {"other_trial", "other_trial_0", "other_trial_1", "other_trial_2", "other_trial_3"}) {
      if (parameters.is_set(name)) paths.push_back(parameters.get_string(name));
    }
    return paths;
  }

  bool has_step(Trial& other, const StepView& step) const {
    const auto state = [&] { return other.has_passed_step(step.mode_step, step.mode); };
    if (state() == StepState::kNotYetAvailable) {
      other.refresh();
      if (state() == StepState::kNotYetAvailable && wait_ns_ > 0) {
        try {
          other.wait_for_steps(std::array{step.mode_step}, step.mode, wait_ns_);
        } catch (const Error&) {  // it takes too long
        }
      }
    }
    return state() == StepState::kAvailable;
  }

  std::vector<const StatisticsRow*> selected_rows(const WorkerStep& worker) {
    std::vector<const StatisticsRow*> rows;
    for (const StatisticsRow& row : worker.record->rows) {
      if (selector_.selects(worker, row.tensor)) rows.push_back(&row);
    }
    std::sort(rows.begin(), rows.end(),
              [](const StatisticsRow* a, const StatisticsRow* b) { return a->tensor < b->tensor; });
    return rows;
  }

  // Whether there was anything to compare with.
  bool compare(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               Trial& other, std::vector<Finding>& findings) {
    const std::string& name = tensor_name(worker, row);
    if (!other.has_tensor(name)) return false;
    const std::vector<std::string> workers = other.workers();
    const bool has_worker =
        std::find(workers.begin(), workers.end(), worker.worker) != workers.end();
    const std::string_view of = has_worker ? worker.worker : std::string_view();
    const auto there = other.row(name, step.mode_step, step.mode, of);
    const auto layout = other.layout(name, step.mode_step, step.mode, of);
    if (!there || !layout) return false;
    compared_.insert(name);
    const std::vector<std::int64_t>& shape = layout_of(worker, row).shape;
    const bool has_same_shape = layout->shape == shape;
    Difference difference{.is_close = false};
    if (has_same_shape) difference = compare_values(step, worker, row, other, of, *there);
    if (difference.is_close != fires_on_similar_) return true;
    findings.push_back(describe(step, worker, name, other, has_same_shape, difference));
    return true;
  }

  Difference compare_values(const StepView& step, const WorkerStep& worker,
                            const StatisticsRow& row, Trial& other, std::string_view of,
                            const StatisticsRow& there) const {
    const std::optional<TensorValues> values = values_of(worker, row);
    const auto raw = values ? other.value(tensor_name(worker, row), step.mode_step, step.mode, of)
                            : std::nullopt;
    const auto others = raw ? decode_values(raw->layout, raw->data.bytes()) : std::nullopt;
    if (!others) return compare_statistics(there.statistics, row.statistics, tolerance_);
    return compare_elements(others->elements, values->elements, tolerance_);
  }

  Finding describe(const StepView& step, const WorkerStep& worker, const std::string& name,
                   const Trial& other, bool has_same_shape, const Difference& difference) const {
    Finding finding = finding_at(step, name, worker.worker);
    finding.statistic = "max_difference";
    finding.observed = difference.max_absolute;
    finding.threshold = tolerance_.absolute;
    if (!has_same_shape) {
      finding.message =
          fmt::format("{} has another shape at step {} than in {}.", name, step.step, other.uri());
    } else if (difference.is_close) {
      finding.message =
          fmt::format("{} is the same at step {} as in {}.", name, step.step, other.uri());
    } else {
      finding.message = fmt::format(
          "{} differs at step {} from that in {}: by up to {:.3g}, {:.3g} relative.", name,
          step.step, other.uri(), difference.max_absolute, difference.max_relative);
    }
    return finding;
  }

  TensorSelector selector_;
  const Tolerance tolerance_;
  const bool fires_on_similar_;
  const std::int64_t wait_ns_;
  const WorkerPolicy policy_;
  std::vector<std::shared_ptr<Trial>> others_;
  Coverage coverage_;
  std::set<std::string> compared_;
};

}  // namespace

const RuleDescriptor& similar_across_runs_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Tensors that differ from those of another run, or do not.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kData,
      .advice = {"Two runs that should be the same and are not cannot be reproduced, or compared.",
                 kCauses,
                 "Look at the first step and the first tensor that differ: initial weights speak "
                 "for the seed, inputs for the data, gradients for the operations."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<SimilarAcrossRuns>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
