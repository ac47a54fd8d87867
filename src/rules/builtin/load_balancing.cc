// LoadBalancing: the GPUs of one job are loaded differently.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LoadBalancing";

constexpr std::string_view kDoc =
    R"(Keeps a histogram of each GPU's utilisation since the start (50 bins of 2 %) and fires when the
Jensen-Shannon distance between two of them (natural logarithm: 0 for equal, 0.8326 for disjoint
ones) is above `threshold`. Both must have more than `patience` samples. All GPUs of all workers are
compared with each other; the worst pair is told, once until no pair is above. Judged at every
100th sample.

Looks at `system/gpu_utilization`. Without a GPU it is not applicable, with one it stays silent.

Source: what SageMaker Debugger's rule of that name is documented to do.)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"threshold", ParameterType::kFloat, "0.5", "Distance; above 0.8326 it never fires.", 0, 100},
    {"patience", ParameterType::kInt, "1000", "Samples of a GPU before it is judged.", 0},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 3> kCauses = {
    "batches that are not split evenly, or a first GPU that also gathers outputs and losses",
    "one worker with more or larger data than the others",
    "a GPU that the training does not use, or that others use too",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

constexpr std::size_t kBinCount = 50;
constexpr double kBinWidth = 2.0;
constexpr std::uint64_t kJudgeEvery = 100;

struct Gpu {
  std::string name;  // "GPU 1 of worker_0"
  std::string worker;
  std::array<std::uint64_t, kBinCount> bins{};
  std::uint64_t count = 0;
  double sum = 0.0;

  void push(double value) {
    const auto bin = static_cast<std::size_t>(value / kBinWidth);
    ++bins[std::min(bin, kBinCount - 1)];  // 100 % belongs to the last
    ++count;
    sum += value;
  }
  double share(std::size_t bin) const {
    return static_cast<double>(bins[bin]) / static_cast<double>(count);
  }
  double mean() const { return sum / static_cast<double>(count); }
};

double distance(const Gpu& a, const Gpu& b) {
  double divergence = 0.0;
  for (std::size_t i = 0; i < kBinCount; ++i) {
    const double p = a.share(i);
    const double q = b.share(i);
    const double middle = (p + q) / 2;
    if (p > 0.0) divergence += p / 2 * std::log(p / middle);
    if (q > 0.0) divergence += q / 2 * std::log(q / middle);
  }
  return std::sqrt(std::max(0.0, divergence));
}

class LoadBalancing : public SystemRule {
 public:
  explicit LoadBalancing(const Parameters& parameters)
      : SystemRule({Metric::kGpuUtilization}),
        threshold_(parameters.get_float("threshold")),
        patience_(static_cast<std::uint64_t>(parameters.get_int("patience"))) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    const auto utilization = sample.of(Metric::kGpuUtilization);
    std::vector<std::size_t>& own = indices_.at(point.worker);
    while (own.size() < utilization.size()) {
      Gpu gpu;
      gpu.worker = point.worker.worker;
      gpu.name = fmt::format("GPU {} of {}", own.size(), gpu.worker);
      own.push_back(gpus_.size());
      gpus_.push_back(std::move(gpu));
    }
    for (std::size_t i = 0; i < utilization.size(); ++i) {
      if (std::isnan(utilization[i])) continue;
      gpus_[own[i]].push(utilization[i]);
      newest_count_ = std::max(newest_count_, gpus_[own[i]].count);
    }
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (newest_count_ <= patience_ || newest_count_ < judged_count_ + kJudgeEvery) return;
    judged_count_ = newest_count_;
    double worst = -1.0;
    const Gpu* first = nullptr;
    const Gpu* second = nullptr;
    for (const Gpu& a : gpus_) {
      for (const Gpu& b : gpus_) {
        if (&a >= &b || a.count <= patience_ || b.count <= patience_) continue;
        const double between = distance(a, b);
        if (between <= worst) continue;
        worst = between;
        first = &a;
        second = &b;
      }
    }
    if (!persistence_.tell(worst > threshold_, 1, findings != nullptr)) return;
    Finding finding = finding_at(step, "system/gpu_utilization", first->worker);
    finding.statistic = "jensen_shannon_distance";
    finding.observed = worst;
    finding.threshold = threshold_;
    finding.message = fmt::format(
        "{} and {} are loaded differently: distance {:.3f}, mean utilisation {:.1f} % and {:.1f} "
        "%.",
        first->name, second->name, worst, first->mean(), second->mean());
    findings->push_back(std::move(finding));
  }

 private:
  const double threshold_;
  const std::uint64_t patience_;
  std::vector<Gpu> gpus_;
  PerWorker<std::vector<std::size_t>> indices_;  // of a worker's GPUs in gpus_
  std::uint64_t newest_count_ = 0;
  std::uint64_t judged_count_ = 0;
  Persistence persistence_;
};

}  // namespace

const RuleDescriptor& load_balancing_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The GPUs of one job are loaded differently.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"The slowest GPU sets the pace; the others wait for it.", kCauses,
                 "Give every GPU a process and an equal share of the data "
                 "(DistributedDataParallel with a DistributedSampler)."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LoadBalancing>,
  };
  return kDescriptor;
}

}  // namespace tensortap
