// What CPUBottleneck and IOBottleneck share: the share of samples in which a GPU idles while a core
// is busy with something else. Used by rules/builtin. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "rules/parameters.h"
#include "rules/series.h"
#include "rules/system_rule.h"

namespace tensortap {

// `core_threshold` is called differently in each rule.
constexpr std::array<ParameterDescriptor, 7> bottleneck_parameters(
    ParameterDescriptor core_threshold) {
  return {{
      {"threshold", ParameterType::kFloat, "50",
       "Percent of the samples that are bottlenecks, above which the rule fires.", 0, 100},
      {"gpu_threshold", ParameterType::kFloat, "10",
       "Utilisation in percent below which a GPU idles.", 0, 100},
      core_threshold,
      {"patience", ParameterType::kInt, "1000", "Samples before anything is judged.", 0},
      {"scope", ParameterType::kString, "any_core",
       "What is compared with the core threshold: any_core, or mean_cpu, the mean over all cores."},
      {"window", ParameterType::kInt, "",
       "Judge the share among so many newest samples instead of all since the start.", 1},
      kScanIntervalParameter,
  }};
}

class BottleneckRule : public SystemRule {
 public:
  // `core_metric` above the parameter `core_threshold`; `what` it is: "waits for storage".
  BottleneckRule(std::string_view rule, const Parameters& parameters, Metric core_metric,
                 std::string_view core_threshold, std::string_view what);

 protected:
  void see(const MachinePoint& point, const MachineSample& sample) override;

 private:
  struct State {
    std::uint64_t samples = 0;
    std::uint64_t bottlenecks = 0;  // among those that are judged
    std::deque<bool> newest;        // with a window
    Persistence persistence;
  };

  // Nothing when the sample lacks a GPU or a core.
  std::optional<bool> is_bottleneck(const MachineSample& sample) const;

  const Metric core_metric_;
  const std::string what_;
  const double threshold_;
  const double gpu_threshold_;
  const double core_threshold_;
  const std::uint64_t patience_;
  const std::size_t window_;  // 0: all samples
  const bool is_mean_;
  PerWorker<State> states_;
};

}  // namespace tensortap
