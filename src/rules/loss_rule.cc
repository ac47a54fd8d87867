#include "rules/loss_rule.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"

namespace tensortap {
namespace {

constexpr std::int32_t kNotAsked = -1;
constexpr std::int32_t kNotJudged = -2;

}  // namespace

LossRule::LossRule(LossScope scope)
    : policy_(scope.policy),
      skips_rising_(scope.skips_rising),
      selector_(std::move(scope.collections), std::move(scope.regexes)) {}

Coverage LossRule::coverage() const {
  Coverage coverage = coverage_;
  coverage.matched_tensors = names_.size();
  return coverage;
}

void LossRule::walk(const StepView& step, std::vector<Finding>* findings) {
  if (!wants(step.mode)) return;
  touched_.clear();
  std::uint64_t count = 0;
  for (const WorkerStep& worker : step.workers) count += gather(worker);
  if (findings != nullptr) {
    coverage_.checked_tensor_steps += count;
    ++(count > 0 ? coverage_.checked_steps : coverage_.skipped_steps);
  }
  // By name: the order of rows is not the same in a running process and in a trace.
  std::sort(touched_.begin(), touched_.end(),
            [&](std::size_t a, std::size_t b) { return *keys_[a] < *keys_[b]; });
  begin(step, findings);
  for (const std::size_t id : touched_) {
    OfStep& series = series_[id];
    const std::string_view worker = series.count == 1 ? series.worker : std::string_view();
    const double value = series.sum / series.count;
    series.count = 0;
    take(step, {id, keys_[id]->first, worker, value}, findings);
  }
  end(step, findings);
}

// Adds a worker's numbers of the step to their accumulators; gives how many there were.
std::uint64_t LossRule::gather(const WorkerStep& worker) {
  std::uint64_t count = 0;
  for (const StatisticsRow& row : worker.record->rows) {
    if (row.statistics.count != 1) continue;
    const std::int32_t index = series_of(worker, row);
    if (index == kNotJudged) continue;
    const auto id = static_cast<std::size_t>(index);
    OfStep& series = series_[id];
    if (policy_ == WorkerPolicy::kFirst && series.count > 0) continue;
    ++count;
    if (series.count == 0) {
      series.sum = 0.0;
      series.worker = worker.worker;
      touched_.push_back(id);
    }
    ++series.count;
    series.sum += single_value(row).value_or(0.0);
  }
  return count;
}

std::int32_t LossRule::series_of(const WorkerStep& worker, const StatisticsRow& row) {
  if (indices_.size() <= worker.worker_index) indices_.resize(worker.worker_index + 1);
  std::vector<std::int32_t>& indices = indices_[worker.worker_index];
  if (indices.size() <= row.tensor) indices.resize(worker.dictionary->tensors.size(), kNotAsked);
  std::int32_t& index = indices[row.tensor];
  if (index == kNotAsked) index = find_or_add(worker, row);
  return index;
}

std::int32_t LossRule::find_or_add(const WorkerStep& worker, const StatisticsRow& row) {
  const std::string& name = worker.dictionary->tensors[row.tensor].name;
  const DType dtype = worker.dictionary->layouts[row.layout].dtype;
  if (dtype_is_complex(dtype) || (skips_rising_ && is_meant_to_rise(name))) return kNotJudged;
  if (!selector_.selects(worker, row.tensor)) return kNotJudged;
  names_.emplace(name, 0);
  const std::string_view owner = policy_ == WorkerPolicy::kAny ? worker.worker : "";
  const auto [known, is_new] = ids_.try_emplace({name, std::string(owner)}, series_.size());
  if (is_new) {
    series_.emplace_back();
    keys_.push_back(&known->first);
  }
  return static_cast<std::int32_t>(known->second);
}

MetricName parse_metric_name(std::string_view name) {
  constexpr std::string_view kScalar = "scalar/";
  constexpr std::array<std::string_view, 2> kTrainingWords = {"train", "training"};
  constexpr std::array<std::string_view, 5> kValidationWords = {"validation", "valid", "val",
                                                                "eval", "test"};
  if (name.substr(0, kScalar.size()) == kScalar) name.remove_prefix(kScalar.size());
  const std::size_t end = name.find_first_of("-_/");
  const auto is_one_of = [&](std::span<const std::string_view> words) {
    return end != std::string_view::npos &&
           std::find(words.begin(), words.end(), name.substr(0, end)) != words.end();
  };
  using enum MetricName::DataSet;
  if (is_one_of(kTrainingWords)) return {kTraining, std::string(name.substr(end + 1))};
  if (is_one_of(kValidationWords)) return {kValidation, std::string(name.substr(end + 1))};
  return {kUnknown, std::string(name)};
}

bool is_meant_to_rise(std::string_view metric) {
  constexpr std::array<std::string_view, 6> kRising = {"auc",  "aucpr", "map",
                                                       "ndcg", "pre",   "accuracy"};
  constexpr std::array<std::string_view, 3> kAggregates = {"mean", "std", "output"};
  std::vector<std::string> words(1);
  for (const char c : metric) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  const auto last = std::find_if(words.rbegin(), words.rend(), [&](const std::string& word) {
    return !word.empty() && !parse_int(word) &&
           std::find(kAggregates.begin(), kAggregates.end(), word) == kAggregates.end();
  });
  return last != words.rend() && std::find(kRising.begin(), kRising.end(), *last) != kRising.end();
}

}  // namespace tensortap
