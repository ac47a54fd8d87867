// BatchSize: CPU, GPU and GPU memory are all little used.
#include <array>
#include <cmath>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "BatchSize";

constexpr std::string_view kDoc =
    R"(Fires for a GPU when the 95th percentiles of the CPU's utilisation (mean over the worker's own
cores), the GPU's utilisation and its allocated memory over the last `window` samples are all below
their thresholds, once there are more than `window` and more than `patience` samples. Told once a
GPU until it is over.

A machine that idles altogether, before or after the training, satisfies this too. It means nothing
where the framework allocates the GPU's whole memory at the start.

Looks at `system/cpu_utilization`, `system/gpu_utilization` and `system/gpu_memory`. Without a GPU
it is not applicable.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"cpu_threshold_p95", ParameterType::kFloat, "70", "Percent; of the mean over the cores.", 0,
     100},
    {"gpu_threshold_p95", ParameterType::kFloat, "70", "Percent.", 0, 100},
    {"gpu_memory_threshold_p95", ParameterType::kFloat, "70", "Percent.", 0, 100},
    {"patience", ParameterType::kInt, "1000", "Samples before anything is judged.", 0},
    {"window", ParameterType::kInt, "500", "Newest samples of which the percentiles are.", 1},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 2> kCauses = {
    "a batch that is small for this GPU",
    "a training that waits for something else than CPU and GPU: storage, network, other workers",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

class BatchSize : public SystemRule {
 public:
  explicit BatchSize(const Parameters& parameters)
      : SystemRule({Metric::kCpuUtilization, Metric::kGpuUtilization, Metric::kGpuMemory}),
        cpu_threshold_(parameters.get_float("cpu_threshold_p95")),
        gpu_threshold_(parameters.get_float("gpu_threshold_p95")),
        memory_threshold_(parameters.get_float("gpu_memory_threshold_p95")),
        patience_(static_cast<std::uint64_t>(parameters.get_int("patience"))),
        window_(static_cast<std::size_t>(parameters.get_int("window"))) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    State& state = states_.at(point.worker);
    const double cpu = mean_of_known(sample.of(Metric::kCpuUtilization));
    if (!std::isnan(cpu)) state.cpu.push(cpu, window_);
    const auto utilization = sample.of(Metric::kGpuUtilization);
    const auto memory = sample.of(Metric::kGpuMemory);
    const std::size_t gpu_count = std::min(utilization.size(), memory.size());
    if (state.gpus.size() < gpu_count) state.gpus.resize(gpu_count);
    for (std::size_t i = 0; i < gpu_count; ++i) {
      if (std::isnan(utilization[i]) || std::isnan(memory[i])) continue;
      state.gpus[i].utilization.push(utilization[i], window_);
      state.gpus[i].memory.push(memory[i], window_);
    }
  }

  void judge(const MachinePoint& point) override {
    State& state = states_.at(point.worker);
    const bool is_cpu_low = state.cpu.count > window_ && state.cpu.count > patience_ &&
                            state.cpu.p95() < cpu_threshold_;
    for (std::size_t i = 0; i < state.gpus.size(); ++i) {
      Gpu& gpu = state.gpus[i];
      const bool fires = is_cpu_low && gpu.utilization.count > window_ &&
                         gpu.utilization.p95() < gpu_threshold_ &&
                         gpu.memory.p95() < memory_threshold_;
      if (!gpu.persistence.tell(fires, 1, point.is_judged())) continue;
      const double p95 = gpu.utilization.p95();
      point.add(Metric::kGpuUtilization, "p95", p95, gpu_threshold_,
                fmt::format("GPU {} could take a larger batch: 95 % of the last {} samples are "
                            "below {:.4g} % utilisation and {:.4g} % memory, and the CPU below "
                            "{:.4g} %.",
                            i, window_, p95, gpu.memory.p95(), state.cpu.p95()));
    }
  }

 private:
  struct Recent {
    void push(double value, std::size_t window) {
      if (count++ == 0) values = RollingWindow(window);
      values.push(value);
    }
    double p95() const { return values.quantile(0.95); }
    RollingWindow values;
    std::uint64_t count = 0;
  };
  struct Gpu {
    Recent utilization;
    Recent memory;
    Persistence persistence;
  };
  struct State {
    Recent cpu;
    std::vector<Gpu> gpus;
  };

  const double cpu_threshold_;
  const double gpu_threshold_;
  const double memory_threshold_;
  const std::uint64_t patience_;
  const std::size_t window_;
  PerWorker<State> states_;
};

}  // namespace

const RuleDescriptor& batch_size_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "CPU, GPU and GPU memory are all little used: the batch may be larger.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"Small batches leave the GPU idle between many short kernels.", kCauses,
                 "Double the batch, and the learning rate with it, until the GPU is busy; or use a "
                 "smaller GPU."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<BatchSize>,
  };
  return kDescriptor;
}

}  // namespace tensortap
