// The numbers of a report on an XGBoost training: what was learned, how the metrics went, which
// features counted, how good the predictions were. Computed from what the XGBoost hook records
// (`train-rmse`, `feature_importance/gain/f0`, `labels`, `predictions`,
// `hyperparameters/objective`); what is missing there is missing here. Used by cli/commands. Not
// thread-safe, as a Trial is not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/classification.h"
#include "trial/trial.h"

namespace tensortap::report {

enum class Task : std::uint8_t { kUnknown, kBinary, kMulticlass, kRegression };
std::string_view task_name(Task task);  // "binary", …

struct Curve {
  std::string name;
  std::vector<std::int64_t> steps;
  std::vector<double> values;
};

struct Histogram {
  std::vector<double> edges;  // one more than counts
  std::vector<std::uint64_t> counts;
};

struct Importance {
  std::string type;                                      // "gain"
  std::int64_t step = 0;                                 // the newest that has it
  std::vector<std::pair<std::string, double>> features;  // largest first
};

struct Classification {
  std::int64_t step = 0;
  ConfusionMatrix confusion;
  std::vector<ClassScores> classes;
  std::vector<Curve> class_accuracies;  // share of each class that is right, over the steps
  std::optional<RocCurve> roc;          // of two classes
};

struct Regression {
  std::int64_t step = 0;
  double rmse = 0.0;
  double mean_absolute_error = 0.0;
  Histogram residuals;             // prediction - label
  std::vector<double> label_bins;  // edges
  std::vector<Curve> bin_errors;   // mean absolute error of each bin, over the steps
};

struct XgboostReport {
  std::string run;
  Task task = Task::kUnknown;
  std::map<std::string, std::string> hyperparameters;
  std::vector<Curve> metrics;  // "train-rmse", "validation-rmse", …
  std::vector<Importance> importances;
  std::vector<std::pair<std::int64_t, std::uint64_t>> label_counts;  // of classes
  std::optional<Histogram> label_histogram;                          // of numbers
  std::optional<Classification> classification;
  std::optional<Regression> regression;
};

// Throws Error(kNotFound) when the run holds none of these.
XgboostReport compute_xgboost_report(const Trial& trial);

std::string to_json(const XgboostReport& report);
// One page without references to anything outside it.
std::string to_html(const XgboostReport& report);

}  // namespace tensortap::report
