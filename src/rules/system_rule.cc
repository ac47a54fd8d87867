#include "rules/system_rule.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/tensor_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kPrefix = "system/";

bool is_percentage(std::size_t metric) {
  switch (static_cast<Metric>(metric)) {
    case Metric::kCpuUtilization:
    case Metric::kIoWait:
    case Metric::kGpuUtilization:
    case Metric::kGpuMemory:
    case Metric::kMemoryUsed:
      return true;
    default:
      return false;
  }
}

bool is_of_gpu(Metric metric) {
  return metric == Metric::kGpuUtilization || metric == Metric::kGpuMemory;
}

// Elements a sample.
std::size_t width_of(const TensorValues& values) {
  return values.shape.size() == 2 ? static_cast<std::size_t>(values.shape[1]) : 1;
}

}  // namespace

double mean_of_known(std::span<const double> values) {
  double sum = 0.0;
  std::size_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

std::string_view metric_name(Metric metric) {
  return kMetrics[static_cast<std::size_t>(metric)].name;
}

Finding& MachinePoint::add(Metric metric, std::string_view statistic, double observed,
                           double threshold, std::string message) const {
  Finding finding =
      finding_at(step, fmt::format("{}{}", kPrefix, metric_name(metric)), worker.worker);
  finding.statistic = statistic;
  finding.observed = observed;
  finding.threshold = threshold;
  finding.message = std::move(message);
  findings->push_back(std::move(finding));
  return findings->back();
}

signed char SystemRule::index_of(const WorkerStep& worker, TensorId tensor) {
  if (known_.size() <= worker.worker_index) known_.resize(worker.worker_index + 1);
  std::vector<signed char>& known = known_[worker.worker_index];
  if (known.size() <= tensor) known.resize(worker.dictionary->tensors.size(), kNotAsked);
  if (known[tensor] != kNotAsked) return known[tensor];
  known[tensor] = kOther;
  std::string_view name = worker.dictionary->tensors[tensor].name;
  if (name.substr(0, kPrefix.size()) != kPrefix) return kOther;
  name.remove_prefix(kPrefix.size());
  if (name == "time") known[tensor] = static_cast<signed char>(kTime);
  for (const MetricInfo& info : kMetrics) {
    if (info.name == name) known[tensor] = static_cast<signed char>(info.metric);
  }
  return known[tensor];
}

bool SystemRule::read(const WorkerStep& worker) {
  sample_count_ = 0;
  for (TensorValues& values : read_) values = {};
  for (const StatisticsRow& row : worker.record->rows) {
    const signed char index = index_of(worker, row.tensor);
    if (index < 0) continue;
    std::optional<TensorValues> values = values_of(worker, row);
    if (!values || values->elements.empty()) continue;
    const auto metric = static_cast<std::size_t>(index);
    for (double& element : values->elements) {
      const bool is_possible = !is_percentage(metric) || (element >= 0.0 && element <= 100.0);
      if (!is_possible) element = std::numeric_limits<double>::quiet_NaN();
    }
    sample_count_ = std::max(sample_count_, values->elements.size() / width_of(*values));
    read_[metric] = std::move(*values);
    seen_.insert(metric);
    ++coverage_.checked_tensor_steps;
  }
  return sample_count_ > 0;
}

void SystemRule::walk(const StepView& step, std::vector<Finding>* findings) {
  bool has_samples = false;
  for (const WorkerStep& worker : step.workers) {
    if (!read(worker)) continue;
    has_samples = true;
    const MachinePoint point{step, worker, findings};
    for (std::size_t i = 0; i < sample_count_; ++i) {
      MachineSample sample;
      for (std::size_t metric = 0; metric < kMetricCount; ++metric) {
        const std::size_t width = width_of(read_[metric]);
        const std::span<const double> all = read_[metric].elements;
        if (all.size() >= (i + 1) * width) sample.values[metric] = all.subspan(i * width, width);
      }
      if (i < read_[kTime].elements.size()) sample.time_s = read_[kTime].elements[i];
      see(point, sample);
    }
    judge(point);
  }
  end(step, findings);
  if (findings != nullptr) ++(has_samples ? coverage_.checked_steps : coverage_.skipped_steps);
}

bool SystemRule::has_all_needed() const {
  return std::all_of(needed_.begin(), needed_.end(), [this](Metric metric) {
    return seen_.count(static_cast<std::size_t>(metric)) != 0;
  });
}

Coverage SystemRule::coverage() const {
  Coverage coverage = coverage_;
  coverage.matched_tensors = has_all_needed() ? seen_.size() : 0;
  return coverage;
}

std::string SystemRule::selection() const {
  if (needed_.empty()) return "system/time";
  std::vector<std::string> names;
  for (const Metric metric : needed_)
    names.push_back(fmt::format("{}{}", kPrefix, metric_name(metric)));
  return join(names, " and ");
}

std::string SystemRule::not_applicable() const {
  const bool lacks_gpu = std::any_of(needed_.begin(), needed_.end(), [this](Metric metric) {
    return is_of_gpu(metric) && seen_.count(static_cast<std::size_t>(metric)) == 0;
  });
  return lacks_gpu ? "not applicable: no GPU metrics in the run" : "";
}

}  // namespace tensortap
