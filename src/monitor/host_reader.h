// CPU, memory, disk and network of this machine, out of /proc and /sys. Used by Sampler. What
// cannot be read is left out of the sample. Not thread-safe; blocks as long as the kernel takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "monitor/sample.h"

namespace tensortap {

class HostReader {
 public:
  // Rates are of the time since the reader was made, and from then on since the last read. The
  // roots are parameters for the tests.
  explicit HostReader(std::string proc_root = "/proc", std::string sys_root = "/sys");

  // `elapsed_s` is the time since the last read.
  void read(double elapsed_s, Sample& sample);

 private:
  struct CoreTimes {
    double total = 0.0;
    double idle = 0.0;
    double io_wait = 0.0;
    bool is_known = false;
  };
  // A counter that only grows, and what became of it.
  struct Counter {
    double value = 0.0;
    bool is_known = false;
    // Sets `rate` to one value; nothing at the first time, or when the counter began anew.
    void advance(double now, double elapsed_s, std::vector<float>& rate);
  };

  void read_cores(Sample& sample);
  void read_memory(Sample& sample);
  void read_disks(double elapsed_s, Sample& sample);
  void read_network(double elapsed_s, Sample& sample);
  void read_worker_processes(Sample& sample);
  bool is_whole_disk(std::string_view name);
  bool is_worker_process(std::string_view pid);

  const std::string proc_root_;
  const std::string sys_root_;
  std::string text_;
  std::vector<CoreTimes> cores_;
  Counter disk_read_, disk_write_, received_, sent_;
  std::unordered_map<std::string, bool> whole_disks_;
  // Processes looked at: only new ones cost reading a file.
  std::unordered_map<std::string, bool> processes_;
  std::string own_command_;
  int reads_until_forgetting_ = 0;
};

}  // namespace tensortap
