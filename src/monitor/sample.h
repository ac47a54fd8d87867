// What the machine was doing at one moment, and the table of metrics that says what is known of it.
// Filled by monitor/, recorded by session/ as the tensors system/<metric>, judged by the system
// rules. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tensortap {

enum class Metric : std::uint8_t {
  kCpuUtilization,   // percent of a core's time, by core
  kIoWait,           // percent of a core's time that it idled for a disk, by core
  kGpuUtilization,   // percent, by GPU
  kGpuMemory,        // percent of the GPU's memory that is allocated, by GPU
  kMemoryUsed,       // percent of the host's memory that is not available
  kProcessMemory,    // resident bytes of the training process
  kDiskRead,         // bytes a second, all disks of the host
  kDiskWrite,        // the same
  kNetworkReceived,  // bytes a second, all interfaces but the loopback
  kNetworkSent,      // the same
  kWorkerProcesses,  // children that run the training's own program: data loader workers
};
inline constexpr std::size_t kMetricCount = 11;

struct MetricInfo {
  Metric metric;
  std::string_view name;  // of the tensor system/<name>
  bool is_per_device;     // one value a core or GPU
};
// In the order of the enumerators.
inline constexpr std::array<MetricInfo, kMetricCount> kMetrics = {{
    {Metric::kCpuUtilization, "cpu_utilization", true},
    {Metric::kIoWait, "io_wait", true},
    {Metric::kGpuUtilization, "gpu_utilization", true},
    {Metric::kGpuMemory, "gpu_memory", true},
    {Metric::kMemoryUsed, "memory_used", false},
    {Metric::kProcessMemory, "process_memory", false},
    {Metric::kDiskRead, "disk_read", false},
    {Metric::kDiskWrite, "disk_write", false},
    {Metric::kNetworkReceived, "network_received", false},
    {Metric::kNetworkSent, "network_sent", false},
    {Metric::kWorkerProcesses, "worker_processes", false},
}};

struct Sample {
  double time_s = 0.0;  // since the Unix epoch
  // By metric. Empty where the machine does not say; NaN for a device that does not.
  std::array<std::vector<float>, kMetricCount> values;

  std::vector<float>& of(Metric metric) { return values[static_cast<std::size_t>(metric)]; }
  const std::vector<float>& of(Metric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
};

}  // namespace tensortap
