// LowGPUUtilization: a GPU is little used, or its use fluctuates.
#include <array>
#include <cmath>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "LowGPUUtilization";

constexpr std::string_view kDoc =
    R"(Fires for a GPU with more than `patience` samples when, over the last `window`,

- the 95th percentile of its utilisation is below `threshold_p95`: under-utilised;
- or the 95th percentile is above that but the 5th below `threshold_p5`: fluctuating.

Each is told once a GPU until it is over. A GPU that was never used fires as well and is named so:
hide it from the training with CUDA_VISIBLE_DEVICES.

Looks at `system/gpu_utilization`. Without a GPU it is not applicable.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"threshold_p95", ParameterType::kFloat, "70", "Percent.", 0, 100},
    {"threshold_p5", ParameterType::kFloat, "10", "Percent.", 0, 100},
    {"window", ParameterType::kInt, "500", "Newest samples of which the percentiles are.", 1},
    {"patience", ParameterType::kInt, "1000", "Samples before anything is judged.", 0},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "data that comes too slowly: see CPUBottleneck, IOBottleneck and Dataloader",
    "a batch or a model that is small for this GPU",
    "blocking calls in the loop: .item(), prints, evaluation and metrics on the CPU, checkpoints",
    "a GPU that the training does not use",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

class LowGPUUtilization : public SystemRule {
 public:
  explicit LowGPUUtilization(const Parameters& parameters)
      : SystemRule({Metric::kGpuUtilization}),
        threshold_p95_(parameters.get_float("threshold_p95")),
        threshold_p5_(parameters.get_float("threshold_p5")),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        patience_(static_cast<std::uint64_t>(parameters.get_int("patience"))) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    std::vector<Gpu>& gpus = states_.at(point.worker);
    const auto utilization = sample.of(Metric::kGpuUtilization);
    while (gpus.size() < utilization.size()) gpus.emplace_back(window_);
    for (std::size_t i = 0; i < utilization.size(); ++i) {
      if (std::isnan(utilization[i])) continue;
      gpus[i].recent.push(utilization[i]);
      gpus[i].maximum = std::max(gpus[i].maximum, utilization[i]);
      ++gpus[i].count;
    }
  }

  void judge(const MachinePoint& point) override {
    std::vector<Gpu>& gpus = states_.at(point.worker);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i].count > patience_) judge_gpu(point, i, gpus[i]);
    }
  }

 private:
  struct Gpu {
    explicit Gpu(std::size_t window) : recent(window) {}
    RollingWindow recent;
    std::uint64_t count = 0;
    double maximum = 0.0;
    Persistence is_low;
    Persistence is_fluctuating;
  };

  void judge_gpu(const MachinePoint& point, std::size_t index, Gpu& gpu) {
    const double p95 = gpu.recent.quantile(0.95);
    const double p5 = gpu.recent.quantile(0.05);
    if (gpu.is_low.tell(p95 < threshold_p95_, 1, point.is_judged())) {
      point.add(Metric::kGpuUtilization, "p95", p95, threshold_p95_,
                gpu.maximum > 0.0
                    ? fmt::format("GPU {} is under-utilised: 95 % of its last {} samples are below "
                                  "{:.4g} %.",
                                  index, gpu.recent.size(), p95)
                    : fmt::format("GPU {} is unused: 0 % in all {} samples.", index, gpu.count));
    }
    const bool fluctuates = p95 > threshold_p95_ && p5 < threshold_p5_;
    if (gpu.is_fluctuating.tell(fluctuates, 1, point.is_judged())) {
      point.add(Metric::kGpuUtilization, "p5", p5, threshold_p5_,
                fmt::format("GPU {} fluctuates: of its last {} samples 5 % are below {:.4g} % and "
                            "5 % above {:.4g} %.",
                            index, gpu.recent.size(), p5, p95));
    }
  }

  const double threshold_p95_;
  const double threshold_p5_;
  const std::size_t window_;
  const std::uint64_t patience_;
  PerWorker<std::vector<Gpu>> states_;
};

}  // namespace

const RuleDescriptor& low_gpu_utilization_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A GPU is little used, or its use fluctuates.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"The GPU is paid for while it idles.", kCauses,
                 "See which of the bottleneck rules fires beside this one; otherwise profile a few "
                 "steps and look for gaps between the kernels."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<LowGPUUtilization>,
  };
  return kDescriptor;
}

}  // namespace tensortap
