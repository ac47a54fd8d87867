#include "monitor/host_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <dirent.h>
#include <limits>
#include <memory>
#include <unistd.h>
#include <utility>

#include "monitor/text_file.h"

namespace tensortap {
namespace {

constexpr double kSectorBytes = 512.0;  // of /proc/diskstats, whatever the disk's own are
constexpr double kKibibyte = 1024.0;
constexpr std::size_t kMaxCores = 65536;
// Numbers of processes are used again, so what is known of them must not be kept for ever.
constexpr int kReadsBetweenForgetting = 120;

float percent(double part, double whole) {
  return static_cast<float>(std::clamp(100.0 * part / whole, 0.0, 100.0));
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

void HostReader::Counter::advance(double now, double elapsed_s, std::vector<float>& rate) {
  if (is_known && now >= value && elapsed_s > 0.0) {
    rate.assign(1, static_cast<float>((now - value) / elapsed_s));
  }
  value = now;
  is_known = true;
}

HostReader::HostReader(std::string proc_root, std::string sys_root)
    : proc_root_(std::move(proc_root)), sys_root_(std::move(sys_root)) {
  read_text_file(proc_root_ + "/self/cmdline", own_command_);
  Sample before;
  read(0.0, before);
}

void HostReader::read(double elapsed_s, Sample& sample) {
  read_cores(sample);
  read_memory(sample);
  read_disks(elapsed_s, sample);
  read_network(elapsed_s, sample);
  read_worker_processes(sample);
}

// Lines "cpu3 user nice system idle iowait irq softirq steal guest guest_nice"; guest time is in
// user time already.
void HostReader::read_cores(Sample& sample) {
  if (!read_text_file(proc_root_ + "/stat", text_)) return;
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  std::vector<float>& utilization = sample.of(Metric::kCpuUtilization);
  std::vector<float>& waits = sample.of(Metric::kIoWait);
  std::string_view rest = text_;
  bool has_any = false;
  while (const auto next = take_line(rest)) {
    std::string_view line = *next;
    std::string_view name = take_word(line);
    if (name.substr(0, 3) != "cpu" || !is_number(name.substr(3))) continue;
    std::size_t core = kMaxCores;
    name.remove_prefix(3);
    std::from_chars(name.data(), name.data() + name.size(), core);
    if (core >= kMaxCores) continue;
    CoreTimes now;
    now.is_known = true;
    for (int field = 0; field < 8; ++field) {
      const double time = take_number(line);
      now.total += time;
      if (field == 3) now.idle = time;
      if (field == 4) now.io_wait = time;
    }
    if (cores_.size() <= core) cores_.resize(core + 1);
    utilization.resize(cores_.size(), unknown);
    waits.resize(cores_.size(), unknown);
    const CoreTimes before = std::exchange(cores_[core], now);
    const double total = now.total - before.total;
    if (!before.is_known || total <= 0.0) continue;
    // Idle and waiting time may run backwards by a tick.
    const double idle = std::max(0.0, now.idle - before.idle);
    const double wait = std::max(0.0, now.io_wait - before.io_wait);
    utilization[core] = percent(total - idle - wait, total);
    waits[core] = percent(wait, total);
    has_any = true;
  }
  if (!has_any) {
    utilization.clear();
    waits.clear();
  }
}

void HostReader::read_memory(Sample& sample) {
  double total = 0.0;
  double available = -1.0;
  if (read_text_file(proc_root_ + "/meminfo", text_)) {
    std::string_view rest = text_;
    while (const auto next = take_line(rest)) {
      std::string_view line = *next;
      const std::string_view name = take_word(line);
      if (name == "MemTotal:") total = take_number(line);
      if (name == "MemAvailable:") available = take_number(line);
    }
  }
  if (total > 0.0 && available >= 0.0) {
    sample.of(Metric::kMemoryUsed).assign(1, percent(total - available, total));
  }
  if (!read_text_file(proc_root_ + "/self/status", text_)) return;
  std::string_view rest = text_;
  while (const auto next = take_line(rest)) {
    std::string_view line = *next;
    if (take_word(line) != "VmRSS:") continue;
    sample.of(Metric::kProcessMemory).assign(1, static_cast<float>(take_number(line) * kKibibyte));
  }
}

// Partitions and stacked devices would count the same bytes again.
bool HostReader::is_whole_disk(std::string_view name) {
  const auto [entry, is_new] = whole_disks_.try_emplace(std::string(name), false);
  if (is_new) {
    const auto begins_with = [name](std::string_view text) {
      return name.substr(0, text.size()) == text;
    };
    const bool is_virtual = begins_with("loop") || begins_with("ram") || begins_with("zram") ||
                            begins_with("dm-") || begins_with("md");
    entry->second =
        !is_virtual && ::access((sys_root_ + "/block/" + std::string(name)).c_str(), F_OK) == 0;
  }
  return entry->second;
}

// Lines "major minor name reads merged sectors ms writes merged sectors ms …".
void HostReader::read_disks(double elapsed_s, Sample& sample) {
  if (!read_text_file(proc_root_ + "/diskstats", text_)) return;
  double read = 0.0;
  double written = 0.0;
  std::string_view rest = text_;
  while (const auto next = take_line(rest)) {
    std::string_view line = *next;
    take_word(line);
    take_word(line);
    if (!is_whole_disk(take_word(line))) continue;
    for (int field = 0; field < 7; ++field) {
      const double number = take_number(line);
      if (field == 2) read += number * kSectorBytes;
      if (field == 6) written += number * kSectorBytes;
    }
  }
  disk_read_.advance(read, elapsed_s, sample.of(Metric::kDiskRead));
  disk_write_.advance(written, elapsed_s, sample.of(Metric::kDiskWrite));
}

// Lines "eth0: bytes packets errs drop fifo frame compressed multicast bytes …", after two of
// titles.
void HostReader::read_network(double elapsed_s, Sample& sample) {
  if (!read_text_file(proc_root_ + "/net/dev", text_)) return;
  double received = 0.0;
  double sent = 0.0;
  std::string_view rest = text_;
  while (const auto next = take_line(rest)) {
    const std::size_t colon = next->find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = next->substr(0, colon);
    if (take_word(name) == "lo") continue;
    std::string_view numbers = next->substr(colon + 1);
    received += take_number(numbers);
    for (int field = 1; field < 8; ++field) take_word(numbers);
    sent += take_number(numbers);
  }
  received_.advance(received, elapsed_s, sample.of(Metric::kNetworkReceived));
  sent_.advance(sent, elapsed_s, sample.of(Metric::kNetworkSent));
}

// A child with the training's own command line was forked by it; PyTorch names its workers.
bool HostReader::is_worker_process(std::string_view pid) {
  const std::string folder = proc_root_ + "/" + std::string(pid);
  std::string text;
  if (!read_text_file(folder + "/stat", text)) return false;
  // "pid (name) state parent …", where the name may hold anything.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return false;
  std::string_view rest = std::string_view(text).substr(end + 1);
  take_word(rest);
  if (take_number(rest) != static_cast<double>(::getpid())) return false;
  if (text.find("(pt_data_worker)") != std::string::npos) return true;
  return read_text_file(folder + "/cmdline", text) && !text.empty() && text == own_command_;
}

void HostReader::read_worker_processes(Sample& sample) {
  if (reads_until_forgetting_-- <= 0) {
    processes_.clear();
    reads_until_forgetting_ = kReadsBetweenForgetting;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc_root_.c_str()), &::closedir);
  if (folder == nullptr) return;
  int count = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (!is_number(entry->d_name)) continue;
    const auto [known, is_new] = processes_.try_emplace(entry->d_name, false);
    if (is_new) known->second = is_worker_process(entry->d_name);
    if (known->second) ++count;
  }
  sample.of(Metric::kWorkerProcesses).assign(1, static_cast<float>(count));
}

}  // namespace tensortap
