#include "base/json.h"
#include "report/xgboost_report.h"

namespace tensortap::report {
namespace {

template <typename T>
void write_list(JsonWriter& json, std::string_view key, const std::vector<T>& values) {
  json.key(key).begin_array();
  for (const T& value : values) json.value(value);
  json.end_array();
}

void write_curves(JsonWriter& json, std::string_view key, const std::vector<Curve>& curves) {
  json.key(key).begin_array();
  for (const Curve& curve : curves) {
    json.begin_object().field("name", curve.name);
    write_list(json, "steps", curve.steps);
    write_list(json, "values", curve.values);
    json.end_object();
  }
  json.end_array();
}

void write_histogram(JsonWriter& json, std::string_view key, const Histogram& histogram) {
  json.key(key).begin_object();
  write_list(json, "edges", histogram.edges);
  write_list(json, "counts", histogram.counts);
  json.end_object();
}

void write_scores(JsonWriter& json, const Scores& scores) {
  json.field("precision", scores.precision).field("recall", scores.recall).field("f1", scores.f1);
}

void write_average(JsonWriter& json, std::string_view key, const Scores& scores) {
  json.key(key).begin_object();
  write_scores(json, scores);
  json.end_object();
}

void write_classification(JsonWriter& json, const Classification& result) {
  json.key("classification").begin_object().field("step", result.step);
  json.field("accuracy", result.confusion.accuracy());
  json.key("confusion_matrix").begin_array();
  for (const auto& row : result.confusion.counts) {
    json.begin_array();
    for (const std::uint64_t count : row) json.value(count);
    json.end_array();
  }
  json.end_array();
  json.key("classes").begin_array();
  for (const ClassScores& one : result.classes) {
    json.begin_object().field("label", one.label).field("support", one.support);
    write_scores(json, one.scores);
    json.end_object();
  }
  json.end_array();
  write_average(json, "micro", micro_average(result.confusion));
  write_average(json, "macro", macro_average(result.classes));
  write_average(json, "weighted", weighted_average(result.classes));
  write_curves(json, "class_accuracies", result.class_accuracies);
  if (result.roc) {
    json.key("roc").begin_object().field("area", result.roc->area);
    write_list(json, "false_positive_rates", result.roc->false_positive_rates);
    write_list(json, "true_positive_rates", result.roc->true_positive_rates);
    json.end_object();
  }
  json.end_object();
}

void write_regression(JsonWriter& json, const Regression& result) {
  json.key("regression").begin_object().field("step", result.step);
  json.field("rmse", result.rmse).field("mean_absolute_error", result.mean_absolute_error);
  write_histogram(json, "residuals", result.residuals);
  write_list(json, "label_bins", result.label_bins);
  write_curves(json, "bin_errors", result.bin_errors);
  json.end_object();
}

}  // namespace

std::string to_json(const XgboostReport& report) {
  JsonWriter json(2);
  json.begin_object().field("run", report.run).field("task", task_name(report.task));
  json.key("hyperparameters").begin_object();
  for (const auto& [name, value] : report.hyperparameters) json.field(name, value);
  json.end_object();
  write_curves(json, "metrics", report.metrics);
  json.key("feature_importance").begin_array();
  for (const Importance& importance : report.importances) {
    json.begin_object().field("type", importance.type).field("step", importance.step);
    json.key("features").begin_array();
    for (const auto& [feature, value] : importance.features) {
      json.begin_object().field("name", feature).field("value", value).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
  if (!report.label_counts.empty()) {
    json.key("label_counts").begin_array();
    for (const auto& [label, count] : report.label_counts) {
      json.begin_object().field("label", label).field("count", count).end_object();
    }
    json.end_array();
  }
  if (report.label_histogram) write_histogram(json, "label_histogram", *report.label_histogram);
  if (report.classification) write_classification(json, *report.classification);
  if (report.regression) write_regression(json, *report.regression);
  json.end_object();
  return json.text();
}

}  // namespace tensortap::report
