// OverallSystemUsage: a summary of what the machine did.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "OverallSystemUsage";

constexpr std::string_view kDoc =
    R"(Never fires. Its status ends with a summary of each worker's machine: maximum, 99th, 95th and
50th percentile and minimum of every metric of the collection `system`, over the mean of the cores
or GPUs at each sample. What was not recorded is left out.

Maximum and minimum are exact. Percentiles are of all samples up to 65,536, then of every second,
fourth, … sample.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<std::string_view, 1> kCauses = {
    "the training itself: it tells, it does not judge"};

constexpr std::array<ParameterDescriptor, 1> kParameters = {kScanIntervalParameter};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

constexpr std::size_t kMaxKept = 65536;

// Evenly spaced values of a series of any length.
class ThinnedSeries {
 public:
  void push(double value) {
    maximum_ = count_ == 0 ? value : std::max(maximum_, value);
    minimum_ = count_ == 0 ? value : std::min(minimum_, value);
    if (count_++ % stride_ != 0) return;
    kept_.push_back(value);
    if (kept_.size() < kMaxKept) return;
    for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((kept_.size() + 1) / 2);
    stride_ *= 2;
  }
  bool is_empty() const { return count_ == 0; }
  std::string text() const {
    std::vector<double> sorted = kept_;
    std::sort(sorted.begin(), sorted.end());
    return fmt::format("max {:.4g}, p99 {:.4g}, p95 {:.4g}, p50 {:.4g}, min {:.4g}", maximum_,
                       quantile(sorted, 0.99), quantile(sorted, 0.95), quantile(sorted, 0.5),
                       minimum_);
  }

 private:
  static double quantile(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
  }

  std::vector<double> kept_;
  std::uint64_t count_ = 0;
  std::uint64_t stride_ = 1;
  double maximum_ = 0.0;
  double minimum_ = 0.0;
};

class OverallSystemUsage : public SystemRule {
 public:
  explicit OverallSystemUsage(const Parameters&) : SystemRule({}) {}

  std::string summary() const override {
    std::vector<std::string> parts;
    for (const Machine& machine : machines_) {
      for (const MetricInfo& info : kMetrics) {
        const ThinnedSeries& one = machine.series[static_cast<std::size_t>(info.metric)];
        if (one.is_empty()) continue;
        const std::string owner = machines_.size() > 1 ? machine.worker + " " : "";
        parts.push_back(fmt::format("{}{}: {}", owner, info.name, one.text()));
      }
    }
    return join(parts, "; ");
  }

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    while (machines_.size() <= point.worker.worker_index) machines_.emplace_back();
    Machine& machine = machines_[point.worker.worker_index];
    machine.worker = point.worker.worker;
    for (const MetricInfo& info : kMetrics) {
      const double mean = mean_of_known(sample.of(info.metric));
      if (!std::isnan(mean)) machine.series[static_cast<std::size_t>(info.metric)].push(mean);
    }
  }

 private:
  struct Machine {
    std::string worker;
    std::array<ThinnedSeries, kMetricCount> series;
  };

  std::vector<Machine> machines_;  // [worker_index]
};

}  // namespace

const RuleDescriptor& overall_system_usage_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A summary of what the machine did; never fires.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"It tells what the other system rules have looked at.", kCauses,
                 "Look at the metric that is at its limit, and at the rule that judges it."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<OverallSystemUsage>,
  };
  return kDescriptor;
}

}  // namespace tensortap
