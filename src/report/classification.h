// How good classes were told apart: confusion matrix, precision, recall, F1 and the ROC curve, with
// scikit-learn's definitions (0 where a division has nothing to divide by). Used by
// xgboost_report. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tensortap::report {

struct Scores {
  double precision = 0.0;
  double recall = 0.0;
  double f1 = 0.0;
};

struct ClassScores {
  std::int64_t label = 0;
  std::uint64_t support = 0;  // samples that have the label
  Scores scores;
};

struct ConfusionMatrix {
  std::vector<std::vector<std::uint64_t>> counts;  // [label][prediction], classes from 0
  std::uint64_t total() const;
  double accuracy() const;
};

// Of one length; classes beyond `kMostClasses` and negative ones are left out.
inline constexpr std::int64_t kMostClasses = 1000;
ConfusionMatrix confusion_of(std::span<const std::int64_t> labels,
                             std::span<const std::int64_t> predictions);

// Of each class that occurs among labels or predictions.
std::vector<ClassScores> class_scores(const ConfusionMatrix& matrix);
Scores micro_average(const ConfusionMatrix& matrix);
Scores macro_average(std::span<const ClassScores> classes);
Scores weighted_average(std::span<const ClassScores> classes);

struct RocCurve {
  std::vector<double> false_positive_rates;  // ascending, from 0 to 1
  std::vector<double> true_positive_rates;
  double area = 0.0;
};
// Class 1 is positive. Of one length. Points are at most `most_points`, the area is exact. Empty
// when only one class occurs.
RocCurve roc_of(std::span<const std::int64_t> labels, std::span<const double> scores,
                std::size_t most_points = 200);

}  // namespace tensortap::report
