// GPUMemoryIncrease: the allocated GPU memory grows.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "GPUMemoryIncrease";

constexpr std::string_view kDoc =
    R"(Fires for a GPU when the mean of its allocated memory over the last `window` samples is more
than `increase` percentage points above the mean over the `window` before, once there are more than
`patience` samples. Told once until it is over. The two windows do not overlap, so a step of that
height is seen at once.

A slow leak never rises that much within a window. With `leak=true` a line through the means of the
last 20 windows (its slope the median of all pairs', so that outliers do not tilt it) is prolonged,
and the rule also fires when it reaches 100 % within `horizon` seconds.

Looks at `system/gpu_memory`. Without a GPU it is not applicable. Frameworks that keep freed memory
for themselves hide a leak until their pool is full.

Source: SageMaker Debugger's rule of that name, without the overlap of its windows; `leak` is ours.)";

constexpr std::array<ParameterDescriptor, 6> kParameters = {{
    {"increase", ParameterType::kFloat, "5", "Percentage points of the GPU's memory.", 0, 100,
     true},
    {"patience", ParameterType::kInt, "1000", "Samples before anything is judged.", 0},
    {"window", ParameterType::kInt, "10", "Samples of each mean.", 1},
    {"leak", ParameterType::kBool, "false", "Fire also when memory will soon be full."},
    {"horizon", ParameterType::kFloat, "3600", "Seconds that count as soon, with leak.", 0, 1e308,
     true},
    kScanIntervalParameter,
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "losses or outputs that are kept with their graphs: use .item() or .detach()",
    "caches, metrics or lists of tensors that grow with every step",
    "inputs of changing size, which fragment the memory",
    "an evaluation without torch.no_grad()",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

constexpr std::size_t kLeakWindows = 20;

struct TimedMean {
  double time_s = 0.0;
  double mean = 0.0;
};

double mean_of(const std::deque<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0.0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

// Median of the slopes between all pairs (Theil and Sen); 0 when the times do not tell.
double robust_slope(const std::deque<TimedMean>& points) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      const double seconds = points[j].time_s - points[i].time_s;
      if (seconds > 0.0) slopes.push_back((points[j].mean - points[i].mean) / seconds);
    }
  }
  if (slopes.empty()) return 0.0;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

class GPUMemoryIncrease : public SystemRule {
 public:
  explicit GPUMemoryIncrease(const Parameters& parameters)
      : SystemRule({Metric::kGpuMemory}),
        increase_(parameters.get_float("increase")),
        patience_(static_cast<std::uint64_t>(parameters.get_int("patience"))),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        sees_leaks_(parameters.get_bool("leak")),
        horizon_s_(parameters.get_float("horizon")) {}

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override {
    std::vector<Gpu>& gpus = states_.at(point.worker);
    const auto memory = sample.of(Metric::kGpuMemory);
    if (gpus.size() < memory.size()) gpus.resize(memory.size());
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (std::isnan(memory[i])) continue;
      Gpu& gpu = gpus[i];
      gpu.recent.push_back(memory[i]);
      if (gpu.recent.size() > 2 * window_) gpu.recent.pop_front();
      ++gpu.count;
      judge_step(point, i, gpu);
      if (sees_leaks_ && gpu.count % window_ == 0) judge_leak(point, i, gpu, sample.time_s);
    }
  }

 private:
  struct Gpu {
    std::deque<double> recent;  // of two windows
    std::deque<TimedMean> means;
    std::uint64_t count = 0;
    Persistence has_grown;
    Persistence leaks;
  };

  void judge_step(const MachinePoint& point, std::size_t index, Gpu& gpu) const {
    if (gpu.count <= patience_ || gpu.recent.size() < 2 * window_) return;
    const double before = mean_of(gpu.recent, 0, window_);
    const double now = mean_of(gpu.recent, window_, 2 * window_);
    if (!gpu.has_grown.tell(now - before > increase_, 1, point.is_judged())) return;
    point.add(
        Metric::kGpuMemory, "increase", now - before, increase_,
        fmt::format("The memory of GPU {} grew from {:.1f} % to {:.1f} %, means of {} samples "
                    "each, at sample {}.",
                    index, before, now, window_, gpu.count - 1));
  }

  void judge_leak(const MachinePoint& point, std::size_t index, Gpu& gpu, double time_s) const {
    const std::size_t size = gpu.recent.size();
    const double now = mean_of(gpu.recent, size - std::min(size, window_), size);
    gpu.means.push_back({time_s, now});
    if (gpu.means.size() > kLeakWindows) gpu.means.pop_front();
    if (gpu.means.size() < kLeakWindows || gpu.count <= patience_) return;
    const double slope = robust_slope(gpu.means);
    const double seconds_left = slope > 0.0 ? (100.0 - now) / slope : horizon_s_ + 1.0;
    if (!gpu.leaks.tell(seconds_left <= horizon_s_, 1, point.is_judged())) return;
    Finding& finding = point.add(
        Metric::kGpuMemory, "seconds_until_full", seconds_left, horizon_s_,
        fmt::format("The memory of GPU {} is {:.1f} % full and grows by {:.3g} points a minute: "
                    "full in {:.0f} s.",
                    index, now, 60.0 * slope, seconds_left));
    finding.severity = Severity::kCritical;
  }

  const double increase_;
  const std::uint64_t patience_;
  const std::size_t window_;
  const bool sees_leaks_;
  const double horizon_s_;
  PerWorker<std::vector<Gpu>> states_;
};

}  // namespace

const RuleDescriptor& gpu_memory_increase_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The allocated GPU memory grows.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"Memory that grows while a training runs ends in an out-of-memory error, often "
                 "hours later.",
                 kCauses,
                 "Look at what the loop keeps from one step to the next; compare "
                 "torch.cuda.memory_allocated() at the same place of two epochs."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<GPUMemoryIncrease>,
  };
  return kDescriptor;
}

}  // namespace tensortap
