// Confusion: classes that are taken for one another.
#include <algorithm>
#include <array>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/classes.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "Confusion";
constexpr std::array<std::string_view, 3> kNormalisations = {"column", "row", "trace"};

constexpr std::string_view kDoc =
    R"(Counts at each step how often class i was predicted as class j and judges this matrix, of that
step alone. Fires when some diagonal entry, as a share of its column (all samples that were predicted
as this class), is less than `min_diag`, or some other entry, as a share of its column, is more than
`max_off_diag`. A class that has labels but is never predicted has the share 0; one with neither is
left out.

SageMaker's documentation divides the diagonal by its sum, which makes a perfect classifier of ten
classes fire; its tests want it silent, which columns do. `normalise` row divides by the samples that
have the label, trace is the formula as printed.

Labels and predictions are the tensors of the names `labels` and `predictions`; where a step has
none, the only tensor of `labels_collection` and `predictions_collection`. Predictions with several
columns count by their largest; predictions between 0 and 1 by whether they exceed 0.5. Raw values are
needed. Training steps only, unless `mode` says otherwise: steps of mode TRAIN, or GLOBAL where the
script sets no mode. Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name; `normalise` and `mode` are additions.)";

constexpr std::array<ParameterDescriptor, 10> kParameters = {{
    {"category_no", ParameterType::kInt, "",
     "Number of classes; unset = the largest label or prediction of the step plus 1.", 2},
    {"labels", ParameterType::kString, "labels", "Name of the tensor with the labels."},
    {"predictions", ParameterType::kString, "predictions",
     "Name of the tensor with the predictions."},
    {"labels_collection", ParameterType::kString, "labels", "Where else the labels are."},
    {"predictions_collection", ParameterType::kString, "predictions",
     "Where else the predictions are."},
    {"min_diag", ParameterType::kFloat, "0.9", "Least share of a diagonal entry.", 0.0, 1.0},
    {"max_off_diag", ParameterType::kFloat, "0.1", "Largest share of another entry.", 0.0, 1.0},
    {"normalise", ParameterType::kString, "column",
     "What diagonal entries are a share of: column, row or trace."},
    {"mode", ParameterType::kString, "",
     "TRAIN, EVAL, PREDICT or GLOBAL: whose steps are judged; unset = TRAIN and GLOBAL."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 2> kCollections = {"labels", "predictions"};

constexpr std::array<std::string_view, 4> kCauses = {
    "classes that look alike, or wrong labels",
    "classes with few samples",
    "a training that has only begun",
    "labels and predictions that do not belong together",
};

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

using Matrix = std::vector<std::vector<double>>;  // [label][prediction]

class Confusion : public Rule {
 public:
  explicit Confusion(const Parameters& parameters)
      : class_count_(parameters.get_int("category_no")),
        labels_(parameters.get_string("labels"), {parameters.get_string("labels_collection")}, {}),
        predictions_(parameters.get_string("predictions"),
                     {parameters.get_string("predictions_collection")}, {}),
        min_diag_(parameters.get_float("min_diag")),
        max_off_diag_(parameters.get_float("max_off_diag")),
        normalisation_(choice_of(kName, parameters, "normalise", kNormalisations)),
        modes_(kName, parameters.get_string("mode")),
        policy_(worker_policy_of(kName, parameters)) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    if (!modes_.takes(step.mode)) return;
    bool is_checked = false;
    for (const WorkerStep& worker : judged_workers(step, policy_)) {
      const StatisticsRow* labels = labels_.find(worker);
      const StatisticsRow* predictions = predictions_.find(worker);
      if (labels == nullptr || predictions == nullptr) continue;
      const auto label_values = values_of(worker, *labels);
      const auto prediction_values = values_of(worker, *predictions);
      if (!label_values || !prediction_values) {
        ++coverage_.valueless_tensor_steps;
        continue;
      }
      coverage_.checked_tensor_steps += 2;
      is_checked = true;
      const Matrix matrix = count(classes_of(*label_values, "the labels"),
                                  classes_of(*prediction_values, "the predictions"));
      judge(step, worker, tensor_name(worker, *predictions), matrix, findings);
    }
    ++(is_checked ? coverage_.checked_steps : coverage_.skipped_steps);
  }

  Coverage coverage() const override {
    Coverage coverage = coverage_;
    coverage.matched_tensors = labels_.matched_tensors() * predictions_.matched_tensors() * 2;
    return coverage;
  }
  std::string selection() const override {
    return labels_.description() + ", and " + predictions_.description();
  }

 private:
  Matrix count(const std::vector<std::int64_t>& labels,
               const std::vector<std::int64_t>& predictions) const {
    if (labels.size() != predictions.size()) {
      reject(fmt::format("{} labels, but {} predictions", labels.size(), predictions.size()));
    }
    std::int64_t class_count = class_count_;
    for (std::size_t i = 0; i < labels.size() && class_count_ == 0; ++i) {
      class_count = std::max({class_count, labels[i] + 1, predictions[i] + 1});
    }
    constexpr std::int64_t kMostClasses = 10'000;
    if (class_count > kMostClasses) {
      reject(fmt::format("{} classes are too many for a matrix", class_count));
    }
    const auto size = static_cast<std::size_t>(class_count);
    Matrix matrix(size, std::vector<double>(size, 0.0));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (const std::int64_t one : {labels[i], predictions[i]}) {
        if (one < 0 || one >= class_count) {
          reject(fmt::format("class {} is not one of 0 to {}", one, class_count - 1));
        }
      }
      matrix[static_cast<std::size_t>(labels[i])][static_cast<std::size_t>(predictions[i])] += 1.0;
    }
    return matrix;
  }

  void judge(const StepView& step, const WorkerStep& worker, const std::string& name,
             const Matrix& matrix, std::vector<Finding>& findings) const {
    double trace = 0.0;
    for (std::size_t k = 0; k < matrix.size(); ++k) trace += matrix[k][k];
    for (std::size_t k = 0; k < matrix.size(); ++k) {
      double column = 0.0;
      double row = 0.0;
      for (std::size_t j = 0; j < matrix.size(); ++j) {
        column += matrix[j][k];
        row += matrix[k][j];
      }
      if (column == 0.0 && row == 0.0) continue;
      const double whole = std::array{column, row, trace}[normalisation_];
      const double diagonal = whole == 0.0 ? 0.0 : matrix[k][k] / whole;
      if (diagonal < min_diag_) {
        Finding finding = finding_at(step, name, worker.worker);
        finding.statistic = "diagonal_share";
        finding.observed = diagonal;
        finding.threshold = min_diag_;
        finding.message =
            fmt::format("Class {}: {:g} of {:g} {} are right at step {} ({:.3g}, less than {:g}).",
                        k, matrix[k][k], whole,
                        std::array{"predictions", "labels", "right answers"}[normalisation_],
                        finding.step, diagonal, min_diag_);
        findings.push_back(std::move(finding));
      }
      judge_column(step, worker, name, matrix, k, column, findings);
    }
  }

  // The worst of a column, so that a class is not told as often as there are classes.
  void judge_column(const StepView& step, const WorkerStep& worker, const std::string& name,
                    const Matrix& matrix, std::size_t k, double column,
                    std::vector<Finding>& findings) const {
    if (column == 0.0) return;
    std::size_t worst = matrix.size();
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      if (j != k && (worst == matrix.size() || matrix[j][k] > matrix[worst][k])) worst = j;
    }
    if (worst == matrix.size() || matrix[worst][k] / column <= max_off_diag_) return;
    Finding finding = finding_at(step, name, worker.worker);
    finding.statistic = "off_diagonal_share";
    finding.observed = matrix[worst][k] / column;
    finding.threshold = max_off_diag_;
    finding.message = fmt::format(
        "Class {} is taken for class {}: {:g} of {:g} predictions at step {} ({:.3g}, more than "
        "{:g}).",
        worst, k, matrix[worst][k], column, finding.step, finding.observed, max_off_diag_);
    findings.push_back(std::move(finding));
  }

  const std::int64_t class_count_;  // 0 when unset
  ClassOperand labels_;
  ClassOperand predictions_;
  const double min_diag_;
  const double max_off_diag_;
  const std::size_t normalisation_;  // of kNormalisations
  const ModeFilter modes_;
  const WorkerPolicy policy_;
  Coverage coverage_;
};

}  // namespace

const RuleDescriptor& confusion_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Classes that are taken for one another.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kLoss,
      .advice = {"A good overall accuracy may hide that some classes are hardly recognised.",
                 kCauses, "Look at samples of the classes that are named, and at their labels."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<Confusion>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
