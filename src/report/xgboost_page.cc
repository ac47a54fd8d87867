#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "report/svg.h"
#include "report/xgboost_report.h"

namespace tensortap::report {
namespace {

constexpr std::size_t kShownFeatures = 20;
constexpr std::size_t kShownClasses = 30;

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>XGBoost training report</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h2 { margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
svg { width: 100%; max-width: 48rem; height: auto; font-size: 11px; }
svg text { fill: #333; }
.grid { stroke: #ddd; fill: none; }
.line { stroke-width: 1.8; fill: none; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #eee; }
th:first-child, td:first-child { text-align: left; }
</style>
</head>
<body>
)";

std::string heading(std::string_view text) { return fmt::format("<h2>{}</h2>\n", text); }
std::string paragraph(std::string_view text) { return fmt::format("<p>{}</p>\n", text); }

Line line_of(const Curve& curve) {
  return {curve.name, {curve.steps.begin(), curve.steps.end()}, curve.values};
}

std::vector<Line> lines_of(const std::vector<Curve>& curves) {
  std::vector<Line> lines;
  for (const Curve& curve : curves) lines.push_back(line_of(curve));
  return lines;
}

std::vector<Bar> bars_of(const Histogram& histogram) {
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    bars.push_back({fmt::format("{:.4g} to {:.4g}", histogram.edges[i], histogram.edges[i + 1]),
                    static_cast<double>(histogram.counts[i])});
  }
  return bars;
}

std::string labels_section(const XgboostReport& report) {
  std::vector<Bar> bars;
  if (report.label_histogram) bars = bars_of(*report.label_histogram);
  for (const auto& [label, count] : report.label_counts) {
    bars.push_back({fmt::format("class {}", label), static_cast<double>(count)});
  }
  if (bars.empty()) return "";
  return heading("Labels") +
         paragraph("How often each label occurs in the data that is predicted.") + bar_chart(bars);
}

// train-rmse and validation-rmse in one chart.
std::string metrics_section(const XgboostReport& report) {
  std::map<std::string, std::vector<Line>> charts;
  for (const Curve& curve : report.metrics) {
    charts[curve.name.substr(curve.name.find('-') + 1)].push_back(line_of(curve));
  }
  std::string out;
  for (const auto& [metric, lines] : charts) out += line_chart("step", metric, lines);
  return out.empty() ? "" : heading("Metrics") + out;
}

std::string importance_section(const XgboostReport& report) {
  std::string out;
  for (const Importance& importance : report.importances) {
    std::vector<Bar> bars;
    for (const auto& [feature, value] : importance.features) {
      if (bars.size() < kShownFeatures) bars.push_back({feature, value});
    }
    if (bars.empty()) continue;
    out += fmt::format("<h3>By {}</h3>\n", escape_html(importance.type));
    if (importance.features.size() > bars.size()) {
      out += paragraph(fmt::format("The first {} of {} features, at step {}.", bars.size(),
                                   importance.features.size(), importance.step));
    }
    out += bar_chart(bars);
  }
  return out.empty() ? "" : heading("Feature importance") + out;
}

std::string scores_row(std::string_view name, const Scores& scores, std::string_view support) {
  return fmt::format(
      "<tr><td>{}</td><td>{:.4f}</td><td>{:.4f}</td><td>{:.4f}</td><td>{}</td></tr>\n", name,
      scores.precision, scores.recall, scores.f1, support);
}

std::string scores_table(const Classification& result) {
  std::string out =
      "<table>\n<tr><th>class</th><th>precision</th><th>recall</th><th>F1</th><th>support</th>"
      "</tr>\n";
  for (const ClassScores& one : result.classes) {
    out += scores_row(fmt::format("{}", one.label), one.scores, fmt::format("{}", one.support));
  }
  out += scores_row("micro average", micro_average(result.confusion), "");
  out += scores_row("macro average", macro_average(result.classes), "");
  out += scores_row("weighted average", weighted_average(result.classes), "");
  return out + "</table>\n";
}

// Darker is a larger share of its row.
std::string confusion_table(const ConfusionMatrix& matrix) {
  const std::size_t size = std::min(matrix.counts.size(), kShownClasses);
  std::string out = "<table>\n<tr><th>label \\ prediction</th>";
  for (std::size_t k = 0; k < size; ++k) out += fmt::format("<th>{}</th>", k);
  out += "</tr>\n";
  for (std::size_t label = 0; label < size; ++label) {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : matrix.counts[label]) sum += count;
    out += fmt::format("<tr><td>{}</td>", label);
    for (std::size_t k = 0; k < size; ++k) {
      const std::uint64_t count = matrix.counts[label][k];
      const double share = sum == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(sum);
      out += fmt::format("<td style=\"background:rgba(0,114,178,{:.2f})\">{}</td>", 0.7 * share,
                         count);
    }
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string classification_section(const Classification& result) {
  std::string out = heading("Confusion matrix");
  out += paragraph(fmt::format("At step {}: {:.4g}% of {} are right.", result.step,
                               100.0 * result.confusion.accuracy(), result.confusion.total()));
  out += confusion_table(result.confusion) + scores_table(result);
  out += heading("Share of each class that is right, over the steps");
  out += line_chart("step", "share", lines_of(result.class_accuracies));
  if (result.roc) {
    out += heading("ROC curve");
    out += paragraph(fmt::format("Area under the curve: {:.4f}.", result.roc->area));
    const std::vector<Line> lines = {
        {"this model", result.roc->false_positive_rates, result.roc->true_positive_rates},
        {"chance", {0.0, 1.0}, {0.0, 1.0}}};
    out += line_chart("false positive rate", "true positive rate", lines);
  }
  return out;
}

std::string regression_section(const Regression& result) {
  std::string out = heading("Residuals");
  out +=
      paragraph(fmt::format("Prediction minus label at step {}: root mean square {:.4g}, mean "
                            "magnitude {:.4g}.",
                            result.step, result.rmse, result.mean_absolute_error));
  out += bar_chart(bars_of(result.residuals));
  out += heading("Mean absolute error by label, over the steps");
  return out + line_chart("step", "error", lines_of(result.bin_errors));
}

std::string hyperparameters_section(const XgboostReport& report) {
  if (report.hyperparameters.empty()) return "";
  std::string out = heading("Hyperparameters") + "<table>\n";
  for (const auto& [name, value] : report.hyperparameters) {
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  }
  return out + "</table>\n";
}

}  // namespace

std::string to_html(const XgboostReport& report) {
  std::string out(kHead);
  out += "<h1>XGBoost training report</h1>\n";
  out +=
      paragraph(fmt::format("Run {}, task: {}.", escape_html(report.run), task_name(report.task)));
  out += labels_section(report) + metrics_section(report) + importance_section(report);
  if (report.classification) out += classification_section(*report.classification);
  if (report.regression) out += regression_section(*report.regression);
  return out + hyperparameters_section(report) + "</body>\n</html>\n";
}

}  // namespace tensortap::report
