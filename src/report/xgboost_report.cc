#include "report/xgboost_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/classes.h"

namespace tensortap::report {
namespace {

constexpr std::size_t kLabelBins = 10;
constexpr std::size_t kResidualBins = 20;
constexpr std::size_t kMostClassesToGuess = 50;  // more distinct labels are numbers, not classes

std::optional<TensorValues> read(const Trial& trial, const std::string& name, std::int64_t step) {
  const auto value = trial.value(name, step);
  return value ? decode_values(value->layout, value->data.bytes()) : std::nullopt;
}

std::map<std::string, std::string> read_hyperparameters(const Trial& trial) {
  constexpr std::string_view kPrefix = "hyperparameters/";
  std::map<std::string, std::string> parameters;
  for (const std::string& name : trial.tensor_names({.regexes = {"^hyperparameters/"}})) {
    const std::vector<std::int64_t> steps = trial.tensor_steps(name);
    if (steps.empty()) continue;
    const std::string key = name.substr(kPrefix.size());
    if (const auto text = trial.text(name, steps.front())) {
      parameters[key] = *text;
    } else if (const auto value = read(trial, name, steps.front());
               value && value->elements.size() == 1) {
      parameters[key] = fmt::format("{}", value->elements.front());
    }
  }
  return parameters;
}

std::vector<Curve> read_metrics(const Trial& trial) {
  std::vector<Curve> metrics;
  for (const std::string& name : trial.tensor_names({.regexes = {"^[a-zA-Z]+-[a-zA-Z0-9@.]+$"}})) {
    Column column = trial.column(name, StatisticId::kMean);
    if (!column.steps.empty()) {
      metrics.push_back({name, std::move(column.steps), std::move(column.values)});
    }
  }
  return metrics;
}

// feature_importance/<type>/<feature>
std::vector<Importance> read_importances(const Trial& trial) {
  std::map<std::string, Importance> types;
  const std::vector<std::string> names =
      trial.tensor_names({.regexes = {"^feature_importance/[^/]+/"}});
  const auto type_of = [](const std::string& name) {
    const std::size_t start = name.find('/') + 1;
    return name.substr(start, name.find('/', start) - start);
  };
  for (const std::string& name : names) {
    const std::vector<std::int64_t> steps = trial.tensor_steps(name);
    Importance& importance = types[type_of(name)];
    if (!steps.empty()) importance.step = std::max(importance.step, steps.back());
  }
  for (const std::string& name : names) {
    Importance& importance = types[type_of(name)];
    const auto value = read(trial, name, importance.step);  // features without a split are absent
    if (!value || value->elements.size() != 1) continue;
    const std::size_t start = name.find('/') + 1;
    importance.features.emplace_back(name.substr(name.find('/', start) + 1),
                                     value->elements.front());
  }
  std::vector<Importance> importances;
  for (auto& [type, importance] : types) {
    importance.type = type;
    std::stable_sort(importance.features.begin(), importance.features.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    importances.push_back(std::move(importance));
  }
  return importances;
}

// Labels and predictions of one step.
struct Answers {
  std::int64_t step = 0;
  std::vector<double> labels;
  TensorValues predictions;
};

// Steps that have both; labels that were saved once stand for all later steps.
std::vector<Answers> read_answers(const Trial& trial) {
  std::vector<Answers> all;
  if (!trial.has_tensor("labels") || !trial.has_tensor("predictions")) return all;
  std::vector<double> labels;
  for (const std::int64_t step : trial.tensor_steps("predictions")) {
    if (auto saved = read(trial, "labels", step)) labels = std::move(saved->elements);
    auto predictions = read(trial, "predictions", step);
    if (!predictions || labels.empty() || predictions->shape.empty() ||
        predictions->shape.front() != static_cast<std::int64_t>(labels.size())) {
      continue;
    }
    all.push_back({step, labels, std::move(*predictions)});
  }
  return all;
}

Task task_of(const XgboostReport& report, const std::vector<Answers>& answers) {
  const auto found = report.hyperparameters.find("objective");
  const std::string objective = found == report.hyperparameters.end() ? "" : found->second;
  const auto starts = [&](std::string_view prefix) { return objective.rfind(prefix, 0) == 0; };
  if (starts("binary:")) return Task::kBinary;
  if (starts("multi:")) return Task::kMulticlass;
  if (starts("reg:") || starts("count:")) return Task::kRegression;
  if (answers.empty()) return Task::kUnknown;
  if (has_scores(answers.back().predictions)) return Task::kMulticlass;
  std::vector<double> distinct = answers.back().labels;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const bool are_classes = distinct.size() <= kMostClassesToGuess &&
                           std::all_of(distinct.begin(), distinct.end(), [](double label) {
                             return label >= 0.0 && label == std::floor(label);
                           });
  if (!are_classes) return Task::kRegression;
  return distinct.back() <= 1.0 ? Task::kBinary : Task::kMulticlass;
}

// Equal bins from the least to the largest finite value.
std::vector<double> edges_of(const std::vector<double>& values, std::size_t count) {
  double low = 0.0;
  double high = 0.0;
  bool is_first = true;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = is_first ? value : std::min(low, value);
    high = is_first ? value : std::max(high, value);
    is_first = false;
  }
  if (high == low) high = low + 1.0;
  std::vector<double> edges;
  for (std::size_t i = 0; i <= count; ++i) {
    edges.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(count));
  }
  return edges;
}

// Nothing for what lies outside or is no number; the last bin holds its upper edge, as NumPy's.
std::optional<std::size_t> bin_of(const std::vector<double>& edges, double value) {
  if (!(value >= edges.front() && value <= edges.back())) return std::nullopt;
  const auto above = std::upper_bound(edges.begin(), edges.end(), value);
  const auto bin = static_cast<std::size_t>(above - edges.begin()) - 1;
  return std::min(bin, edges.size() - 2);
}

Histogram histogram_of(const std::vector<double>& values, std::size_t bin_count) {
  Histogram histogram{edges_of(values, bin_count), std::vector<std::uint64_t>(bin_count, 0)};
  for (const double value : values) {
    if (const auto bin = bin_of(histogram.edges, value)) ++histogram.counts[*bin];
  }
  return histogram;
}

Classification classify(const std::vector<Answers>& all, bool is_binary) {
  Classification result;
  std::map<std::int64_t, Curve> accuracies;
  for (const Answers& answers : all) {
    const std::vector<std::int64_t> labels = classes_of({{}, answers.labels}, "the labels");
    // Margins (binary:logitraw) lie on both sides of zero.
    std::vector<std::int64_t> predictions;
    const std::vector<double>& raw = answers.predictions.elements;
    const bool are_margins =
        is_binary && !has_scores(answers.predictions) &&
        std::any_of(raw.begin(), raw.end(), [](double p) { return p < 0.0 || p > 1.0; });
    if (are_margins) {
      for (const double margin : raw) predictions.push_back(margin > 0.0 ? 1 : 0);
    } else {
      predictions = classes_of(answers.predictions, "the predictions");
    }
    result.step = answers.step;
    result.confusion = confusion_of(labels, predictions);
    result.classes = class_scores(result.confusion);
    for (const ClassScores& one : result.classes) {
      Curve& curve = accuracies[one.label];
      curve.name = fmt::format("class {}", one.label);
      curve.steps.push_back(answers.step);
      curve.values.push_back(one.scores.recall);
    }
    if (is_binary && raw.size() == labels.size()) result.roc = roc_of(labels, raw);
  }
  for (auto& [label, curve] : accuracies) result.class_accuracies.push_back(std::move(curve));
  return result;
}

Regression regress(const std::vector<Answers>& all) {
  Regression result;
  result.step = all.back().step;
  result.label_bins = edges_of(all.back().labels, kLabelBins);
  result.bin_errors.resize(kLabelBins);
  for (std::size_t bin = 0; bin < kLabelBins; ++bin) {
    result.bin_errors[bin].name =
        fmt::format("{:.3g} to {:.3g}", result.label_bins[bin], result.label_bins[bin + 1]);
  }
  std::vector<double> residuals;
  for (const Answers& answers : all) {
    residuals.clear();
    std::vector<double> sums(kLabelBins, 0.0);
    std::vector<double> counts(kLabelBins, 0.0);
    const std::size_t count = std::min(answers.labels.size(), answers.predictions.elements.size());
    for (std::size_t i = 0; i < count; ++i) {
      residuals.push_back(answers.predictions.elements[i] - answers.labels[i]);
      const auto bin = bin_of(result.label_bins, answers.labels[i]);
      if (!bin) continue;
      sums[*bin] += std::abs(residuals.back());
      counts[*bin] += 1.0;
    }
    for (std::size_t bin = 0; bin < kLabelBins; ++bin) {
      if (counts[bin] == 0.0) continue;
      result.bin_errors[bin].steps.push_back(answers.step);
      result.bin_errors[bin].values.push_back(sums[bin] / counts[bin]);
    }
  }
  double squares = 0.0;
  double magnitudes = 0.0;
  for (const double residual : residuals) {
    squares += residual * residual;
    magnitudes += std::abs(residual);
  }
  const auto count = static_cast<double>(residuals.size());
  result.rmse = std::sqrt(squares / count);
  result.mean_absolute_error = magnitudes / count;
  result.residuals = histogram_of(residuals, kResidualBins);
  return result;
}

void add_labels(XgboostReport& report, const std::vector<double>& labels) {
  if (report.task == Task::kRegression) {
    report.label_histogram = histogram_of(labels, kLabelBins);
    return;
  }
  std::map<std::int64_t, std::uint64_t> counts;
  for (const std::int64_t label : classes_of({{}, labels}, "the labels")) ++counts[label];
  report.label_counts.assign(counts.begin(), counts.end());
}

}  // namespace

std::string_view task_name(Task task) {
  switch (task) {
    case Task::kUnknown:
      return "unknown";
    case Task::kBinary:
      return "binary";
    case Task::kMulticlass:
      return "multiclass";
    case Task::kRegression:
      return "regression";
  }
  return "";
}

XgboostReport compute_xgboost_report(const Trial& trial) {
  XgboostReport report;
  report.run = trial.uri();
  report.hyperparameters = read_hyperparameters(trial);
  report.metrics = read_metrics(trial);
  report.importances = read_importances(trial);
  const std::vector<Answers> answers = read_answers(trial);
  if (report.metrics.empty() && report.importances.empty() && answers.empty()) {
    throw Error(ErrorCode::kNotFound,
                "the run holds nothing of an XGBoost training: no metrics such as train-rmse, no "
                "feature_importance/, no labels and predictions with raw values: " +
                    trial.uri());
  }
  report.task = task_of(report, answers);
  if (answers.empty()) return report;
  add_labels(report, answers.back().labels);
  if (report.task == Task::kRegression) {
    report.regression = regress(answers);
  } else {
    report.classification = classify(answers, report.task == Task::kBinary);
  }
  return report;
}

}  // namespace tensortap::report
