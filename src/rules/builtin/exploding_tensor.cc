// ExplodingTensor: NaN or infinities in a tensor.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ExplodingTensor";
constexpr std::array kPolicies = {WorkerPolicy::kAny, WorkerPolicy::kFirst};

constexpr std::string_view kDoc =
    R"(Fires when a tensor holds a NaN or an infinite element; with `only_nan`, a NaN. One such
element spoils everything that is computed from it, so there is no threshold. Every offender of a
step is reported with its counts of NaN, +Inf and -Inf and its dtype: a float16 tensor may be
infinite only because a large float32 value did not fit into it.

Looks at all saved tensors, or at the union of `collection_names` and `tensor_regex`, at steps of
every mode. Several workers are judged one by one.

What to do: look at the first step and, in it, at the first tensor in the order of the forward
pass. Common causes are a learning rate too high (clip gradients, warm up), log or division by
zero in a hand-written loss, a square root at zero, float16 overflow (loss scaling, bfloat16), and
bad input data.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections to look at, separated by commas; with tensor_regex their union, with neither all "
     "tensors."},
    {"tensor_regex", ParameterType::kList, "",
     "Patterns of tensor names to look at, separated by commas."},
    {"only_nan", ParameterType::kBool, "false", "Ignore infinities."},
    {"worker_policy", ParameterType::kString, "any",
     "Whose tensors count with several workers: any (each is judged) or first."},
}};

class ExplodingTensor : public Rule {
 public:
  explicit ExplodingTensor(const Parameters& parameters)
      : only_nan_(parameters.get_bool("only_nan")),
        policy_(parse_worker_policy(kName, parameters.get_string("worker_policy"), kPolicies)),
        selector_(parameters.get_list("collection_names"), parameters.get_list("tensor_regex")) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    std::uint64_t count = 0;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      offenders_.clear();
      for (const StatisticsRow& row : worker.record->rows) {
        if (!selector_.selects(worker, row.tensor)) continue;
        ++count;
        const Statistics& s = row.statistics;
        const std::uint64_t infinite = only_nan_ ? 0 : s.positive_inf_count | s.negative_inf_count;
        if ((s.nan_count | infinite) != 0) offenders_.push_back(&row);
      }
      std::sort(
          offenders_.begin(), offenders_.end(),
          [](const StatisticsRow* a, const StatisticsRow* b) { return a->tensor < b->tensor; });
      for (const StatisticsRow* row : offenders_) findings.push_back(describe(step, worker, *row));
    }
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = selector_.matched_tensors();
    return coverage;
  }
  std::string selection() const override { return selector_.description(); }
  std::vector<std::string> wanted_collections() const override { return selector_.collections(); }

 private:
  static Finding describe(const StepView& step, const WorkerStep& worker,
                          const StatisticsRow& row) {
    const Statistics& s = row.statistics;
    const std::uint64_t infinite = s.positive_inf_count + s.negative_inf_count;
    Finding finding = finding_at(step, worker.dictionary->tensors[row.tensor].name, worker.worker);
    finding.statistic = s.nan_count != 0 ? "nan_count" : "inf_count";
    finding.observed = static_cast<double>(s.nan_count != 0 ? s.nan_count : infinite);
    finding.threshold = 0.0;
    std::vector<std::string> counts;
    if (s.nan_count != 0) counts.push_back(fmt::format("{} NaN", s.nan_count));
    if (s.positive_inf_count != 0) counts.push_back(fmt::format("{} +Inf", s.positive_inf_count));
    if (s.negative_inf_count != 0) counts.push_back(fmt::format("{} -Inf", s.negative_inf_count));
    finding.message = fmt::format("{} holds {} at step {}, of {} elements ({}).", finding.tensor,
                                  join(counts, ", "), finding.step, s.count,
                                  dtype_name(worker.dictionary->layouts[row.layout].dtype));
    return finding;
  }

  const bool only_nan_;
  const WorkerPolicy policy_;
  TensorSelector selector_;
  Coverage coverage_;
  std::vector<const StatisticsRow*> offenders_;
};

}  // namespace

const RuleDescriptor& exploding_tensor_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "NaN or infinite elements in a tensor.",
      .doc = kDoc,
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<ExplodingTensor>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
