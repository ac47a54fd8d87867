#include "report/classification.h"

#include <algorithm>
#include <numeric>

namespace tensortap::report {
namespace {

double share(double part, double whole) { return whole == 0.0 ? 0.0 : part / whole; }

Scores scores_of(double right, double predicted, double labelled) {
  Scores scores{share(right, predicted), share(right, labelled), 0.0};
  scores.f1 = share(2.0 * scores.precision * scores.recall, scores.precision + scores.recall);
  return scores;
}

}  // namespace

std::uint64_t ConfusionMatrix::total() const {
  std::uint64_t total = 0;
  for (const auto& row : counts) total = std::accumulate(row.begin(), row.end(), total);
  return total;
}

double ConfusionMatrix::accuracy() const {
  std::uint64_t right = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) right += counts[k][k];
  return share(static_cast<double>(right), static_cast<double>(total()));
}

ConfusionMatrix confusion_of(std::span<const std::int64_t> labels,
                             std::span<const std::int64_t> predictions) {
  const auto is_class = [](std::int64_t one) { return one >= 0 && one < kMostClasses; };
  std::int64_t largest = -1;
  for (const std::span<const std::int64_t> classes : {labels, predictions}) {
    for (const std::int64_t one : classes) {
      if (is_class(one)) largest = std::max(largest, one);
    }
  }
  const auto size = static_cast<std::size_t>(largest + 1);
  ConfusionMatrix matrix{std::vector(size, std::vector<std::uint64_t>(size, 0))};
  for (std::size_t i = 0; i < std::min(labels.size(), predictions.size()); ++i) {
    if (!is_class(labels[i]) || !is_class(predictions[i])) continue;
    ++matrix.counts[static_cast<std::size_t>(labels[i])][static_cast<std::size_t>(predictions[i])];
  }
  return matrix;
}

std::vector<ClassScores> class_scores(const ConfusionMatrix& matrix) {
  std::vector<ClassScores> classes;
  for (std::size_t k = 0; k < matrix.counts.size(); ++k) {
    std::uint64_t labelled = 0;
    std::uint64_t predicted = 0;
    for (std::size_t j = 0; j < matrix.counts.size(); ++j) {
      labelled += matrix.counts[k][j];
      predicted += matrix.counts[j][k];
    }
    if (labelled + predicted == 0) continue;
    classes.push_back({static_cast<std::int64_t>(k), labelled,
                       scores_of(static_cast<double>(matrix.counts[k][k]),
                                 static_cast<double>(predicted), static_cast<double>(labelled))});
  }
  return classes;
}

Scores micro_average(const ConfusionMatrix& matrix) {
  const double accuracy = matrix.accuracy();  // each sample has one label and one prediction
  return {accuracy, accuracy, accuracy};
}

Scores macro_average(std::span<const ClassScores> classes) {
  Scores sum;
  for (const ClassScores& one : classes) {
    sum.precision += one.scores.precision;
    sum.recall += one.scores.recall;
    sum.f1 += one.scores.f1;
  }
  const auto count = static_cast<double>(classes.size());
  return {share(sum.precision, count), share(sum.recall, count), share(sum.f1, count)};
}

Scores weighted_average(std::span<const ClassScores> classes) {
  Scores sum;
  double total = 0.0;
  for (const ClassScores& one : classes) {
    const auto weight = static_cast<double>(one.support);
    sum.precision += weight * one.scores.precision;
    sum.recall += weight * one.scores.recall;
    sum.f1 += weight * one.scores.f1;
    total += weight;
  }
  return {share(sum.precision, total), share(sum.recall, total), share(sum.f1, total)};
}

RocCurve roc_of(std::span<const std::int64_t> labels, std::span<const double> scores,
                std::size_t most_points) {
  const std::size_t count = std::min(labels.size(), scores.size());
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  const auto positives = static_cast<double>(std::count(labels.begin(), labels.end(), 1));
  const double negatives = static_cast<double>(count) - positives;
  RocCurve whole;
  if (positives == 0.0 || negatives == 0.0) return whole;
  whole.false_positive_rates = whole.true_positive_rates = {0.0};
  double true_positives = 0.0;
  double false_positives = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    (labels[order[i]] == 1 ? true_positives : false_positives) += 1.0;
    if (i + 1 < count && scores[order[i + 1]] == scores[order[i]]) continue;  // a tie is one point
    const double x = false_positives / negatives;
    const double y = true_positives / positives;
    whole.area +=
        (x - whole.false_positive_rates.back()) * (y + whole.true_positive_rates.back()) / 2.0;
    whole.false_positive_rates.push_back(x);
    whole.true_positive_rates.push_back(y);
  }
  const std::size_t point_count = whole.false_positive_rates.size();
  if (point_count <= most_points) return whole;
  RocCurve thinned{{}, {}, whole.area};
  for (std::size_t i = 0; i < most_points; ++i) {
    const std::size_t at = i * (point_count - 1) / (most_points - 1);
    thinned.false_positive_rates.push_back(whole.false_positive_rates[at]);
    thinned.true_positive_rates.push_back(whole.true_positive_rates[at]);
  }
  return thinned;
}

}  // namespace tensortap::report
