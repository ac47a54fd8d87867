// Expression: a condition that the user wrote.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "rules/expression/evaluator.h"
#include "rules/registry.h"
#include "rules/tensor_selector.h"
#include "rules/worker_policy.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "Expression";
constexpr std::array kPolicies = {WorkerPolicy::kAny, WorkerPolicy::kFirst};

constexpr std::string_view kDoc =
    R"(Fires at every step at which the condition `expression` holds, for each tensor for which it
holds. Examples:

    abs_mean(gradients) > 10 for 3 steps
    loss > 1.2 * min(loss, 100 steps)
    max(weights) / p50(weights) > 1e3

A name stands for the tensors of the collection of that name, and for the tensor of that name with
or without `scalar/` before it; `loss` for the collection `losses`; text in quotes is a regex for
tensor names. A statistic in front of parentheses (min, max, mean, abs_mean, std, l2, nan_count, …,
p50) is taken of each tensor, a bare name is the value of a tensor with one element. min, max, mean,
median, sum and std over a number of steps look at the steps before the present one. min_of, max_of,
mean_of and sum_of join all tensors of a set. The grammar stands in docs/expressions.md; nothing but
it is evaluated.

A comparison with NaN does not hold (but `!=`). A tensor or a window without a value leaves the
condition open at that step.

Source: ours.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {.name = "expression",
     .type = ParameterType::kString,
     .doc = "The condition.",
     .is_required = true},
    {"mode", ParameterType::kString, "TRAIN",
     "Steps that are judged: TRAIN (GLOBAL where the script sets no mode), EVAL, PREDICT or ALL."},
    {"severity", ParameterType::kString, "warning", "Of its findings: info, warning or critical."},
    {"worker_policy", ParameterType::kString, "any",
     "Whose tensors count with several workers: any (each is judged) or first."},
}};

constexpr std::array<std::string_view, 1> kCauses = {
    "what the author of the expression had in mind"};

expression::Expression parse_expression(const Parameters& parameters) {
  try {
    return expression::parse(parameters.get_string("expression"));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rule {}: {}", kName, error.what()));
  }
}

Severity parse_severity(const std::string& text) {
  if (const std::optional<Severity> severity = severity_from_name(text)) return *severity;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("rule {}: parameter 'severity' must be info, warning or critical, not '{}'",
                  kName, text));
}

// Modes that are judged.
std::vector<Mode> parse_modes(const std::string& text) {
  if (text == "ALL") return {Mode::kTrain, Mode::kEval, Mode::kPredict, Mode::kGlobal};
  const std::optional<Mode> mode = mode_from_name(text);
  if (mode == Mode::kTrain) return {Mode::kTrain, Mode::kGlobal};
  if (mode) return {*mode};
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rule {}: parameter 'mode' must be TRAIN, EVAL, PREDICT, GLOBAL or ALL, "
                          "not '{}'",
                          kName, text));
}

// A tensor name as a regex.
std::string escaped(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '.') text += '\\';
    text += c;
  }
  return text;
}

TensorSelector selector_of(const expression::Selection& selection) {
  if (selection.is_regex) return {{}, {selection.text}};
  const std::string collection = selection.text == "loss" ? "losses" : selection.text;
  return {{collection}, {"^(scalar/)?" + escaped(selection.text) + "$"}};
}

class ExpressionRule : public Rule {
 public:
  explicit ExpressionRule(const Parameters& parameters)
      : expression_(parse_expression(parameters)),
        evaluator_(expression_),
        modes_(parse_modes(parameters.get_string("mode"))),
        severity_(parse_severity(parameters.get_string("severity"))),
        policy_(parse_worker_policy(kName, parameters.get_string("worker_policy"), kPolicies)) {
    for (const expression::Selection& selection : expression_.selections) {
      selectors_.push_back(selector_of(selection));
    }
    rows_.resize(selectors_.size());
  }

  void check(const StepView& step, std::vector<Finding>& findings) override {
    walk(step, &findings);
  }
  void observe(const StepView& step) override { walk(step, nullptr); }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    for (const TensorSelector& selector : selectors_) {
      coverage.matched_tensors += selector.matched_tensors();
    }
    return coverage;
  }
  std::string selection() const override {
    std::vector<std::string> texts;
    for (const expression::Selection& selection : expression_.selections) {
      texts.push_back("'" + selection.text + "'");
    }
    return join(texts, ", ");
  }

 private:
  void walk(const StepView& step, std::vector<Finding>* findings) {
    if (std::find(modes_.begin(), modes_.end(), step.mode) == modes_.end()) return;
    std::uint64_t judged = 0;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      gather(worker);
      for (const expression::Verdict& verdict : evaluator_.evaluate(step, worker, rows_)) {
        ++judged;
        if (verdict.holds && findings != nullptr) {
          findings->push_back(describe(step, worker, verdict));
        }
      }
    }
    if (findings == nullptr) return;
    coverage_.checked_tensor_steps += judged;
    ++(judged > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  void gather(const WorkerStep& worker) {
    for (std::size_t i = 0; i < selectors_.size(); ++i) {
      rows_[i].clear();
      for (const StatisticsRow& row : worker.record->rows) {
        if (selectors_[i].selects(worker, row.tensor)) rows_[i].push_back(&row);
      }
      std::sort(
          rows_[i].begin(), rows_[i].end(),
          [](const StatisticsRow* a, const StatisticsRow* b) { return a->tensor < b->tensor; });
    }
  }

  Finding describe(const StepView& step, const WorkerStep& worker,
                   const expression::Verdict& verdict) const {
    const std::string_view tensor =
        verdict.row != nullptr
            ? std::string_view(worker.dictionary->tensors[verdict.row->tensor].name)
            : std::string_view();
    Finding finding = finding_at(step, tensor, worker.worker);
    finding.severity = severity_;
    finding.statistic = "expression";
    finding.observed = verdict.left;
    finding.threshold = verdict.right;
    finding.message = fmt::format("{} holds at step {}{}: {:.6g} against {:.6g}.", expression_.text,
                                  step.step, tensor.empty() ? "" : fmt::format(" for {}", tensor),
                                  verdict.left, verdict.right);
    return finding;
  }

  const expression::Expression expression_;
  expression::Evaluator evaluator_;
  const std::vector<Mode> modes_;
  const Severity severity_;
  const WorkerPolicy policy_;
  std::vector<TensorSelector> selectors_;                // of each selection
  std::vector<std::vector<const StatisticsRow*>> rows_;  // of each selection, at this step
  Coverage coverage_;
};

}  // namespace

const RuleDescriptor& expression_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A condition that you write yourself.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kLoss,
      .advice = {"Whoever wrote the expression wanted to know.", kCauses,
                 "Look at the tensor and the steps that the finding names."},
      .parameters = kParameters,
      .collections = {},
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<ExpressionRule>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
