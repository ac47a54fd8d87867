#include "rules/classes.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/tensor_rule.h"

namespace tensortap {
namespace {

std::vector<std::int64_t> columns_of_largest(const TensorValues& values) {
  const auto width = values.shape.back();
  std::vector<std::int64_t> classes;
  for (auto row = values.elements.begin(); row != values.elements.end(); row += width) {
    classes.push_back(std::max_element(row, row + width) - row);
  }
  return classes;
}

}  // namespace

bool has_scores(const TensorValues& values) {
  return values.shape.size() > 1 && values.shape.back() > 1;
}

std::vector<std::int64_t> classes_of(const TensorValues& values, std::string_view what) {
  if (has_scores(values)) return columns_of_largest(values);
  const std::vector<double>& elements = values.elements;
  const bool are_whole = std::all_of(elements.begin(), elements.end(), [](double element) {
    return element == std::floor(element) && std::abs(element) < 1e15;
  });
  const bool are_probabilities =
      !are_whole && std::all_of(elements.begin(), elements.end(),
                                [](double element) { return element >= 0.0 && element <= 1.0; });
  if (!are_whole && !are_probabilities) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} are neither class numbers nor probabilities", what));
  }
  std::vector<std::int64_t> classes;
  for (const double element : elements) {
    classes.push_back(are_whole ? static_cast<std::int64_t>(element) : (element > 0.5 ? 1 : 0));
  }
  return classes;
}

ClassOperand::ClassOperand(std::string name, std::vector<std::string> collections,
                           std::vector<std::string> regexes)
    : name_(std::move(name)), selector_(std::move(collections), std::move(regexes)) {}

const StatisticsRow* ClassOperand::find(const WorkerStep& worker) {
  const StatisticsRow* found = nullptr;
  for (const StatisticsRow& row : worker.record->rows) {
    if (tensor_name(worker, row) == name_) {
      is_found_ = true;
      return &row;
    }
  }
  for (const StatisticsRow& row : worker.record->rows) {
    if (!selector_.selects(worker, row.tensor)) continue;
    if (found != nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("both '{}' and '{}' match {}: say which is meant",
                              tensor_name(worker, *found), tensor_name(worker, row),
                              selector_.description()));
    }
    found = &row;
  }
  if (found != nullptr) is_found_ = true;
  return found;
}

std::string ClassOperand::description() const {
  if (name_.empty()) return selector_.description();
  return fmt::format("tensor '{}' or {}", name_, selector_.description());
}

ModeFilter::ModeFilter(std::string_view rule, const std::string& mode) {
  if (mode.empty()) return;
  mode_ = mode_from_name(mode);
  if (!mode_) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rule {}: parameter 'mode' must be TRAIN, EVAL, PREDICT or GLOBAL, not "
                            "'{}'",
                            rule, mode));
  }
}

bool ModeFilter::takes(Mode mode) const {
  return mode_ ? mode == *mode_ : mode == Mode::kTrain || mode == Mode::kGlobal;
}

}  // namespace tensortap
