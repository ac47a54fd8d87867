#include "monitor/gpu_reader.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "base/text.h"

namespace tensortap {
namespace {

// The part of the library's interface that is used; its layout is fixed by the driver.
using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kUuidBytes = 96;

struct Utilization {
  unsigned gpu;
  unsigned memory;  // of the memory's bandwidth
};

struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// Whether CUDA_VISIBLE_DEVICES lets the process see a GPU. CUDA stops at the first entry that means
// nothing to it, "-1" for instance.
bool is_visible(const std::optional<std::string>& visible, unsigned index, std::string_view uuid) {
  if (!visible) return true;
  for (const std::string& entry : split_list(*visible)) {
    if (const auto number = parse_int(entry)) {
      if (*number < 0) return false;
      if (*number == static_cast<std::int64_t>(index)) return true;
    } else if (!entry.empty() && uuid.substr(0, entry.size()) == entry) {
      return true;
    }
  }
  return false;
}

std::optional<std::string> visible_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace

struct GpuReader::Library {
  ~Library();
  bool load(const std::string& name);
  void find_devices();

  template <typename Function>
  bool find(const char* name, Function& function) {
    function = std::bit_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }

  void* handle = nullptr;
  bool is_ready = false;
  std::vector<Device> devices;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*get_count)(unsigned*) = nullptr;
  int (*get_device)(unsigned, Device*) = nullptr;
  int (*get_uuid)(Device, char*, unsigned) = nullptr;
  int (*get_utilization)(Device, Utilization*) = nullptr;
  int (*get_memory)(Device, MemoryInfo*) = nullptr;
};

GpuReader::Library::~Library() {
  if (is_ready) shutdown();
  if (handle != nullptr) ::dlclose(handle);
}

bool GpuReader::Library::load(const std::string& name) {
  handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  const bool is_complete = find("nvmlInit_v2", init) && find("nvmlShutdown", shutdown) &&
                           find("nvmlDeviceGetCount_v2", get_count) &&
                           find("nvmlDeviceGetHandleByIndex_v2", get_device) &&
                           find("nvmlDeviceGetUUID", get_uuid) &&
                           find("nvmlDeviceGetUtilizationRates", get_utilization) &&
                           find("nvmlDeviceGetMemoryInfo", get_memory);
  is_ready = is_complete && init() == kSuccess;
  return is_ready;
}

void GpuReader::Library::find_devices() {
  const std::optional<std::string> visible = visible_devices();
  unsigned count = 0;
  if (get_count(&count) != kSuccess) return;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (get_device(i, &device) != kSuccess) continue;
    std::array<char, kUuidBytes> uuid{};
    if (get_uuid(device, uuid.data(), kUuidBytes) != kSuccess) uuid[0] = '\0';
    if (is_visible(visible, i, uuid.data())) devices.push_back(device);
  }
}

GpuReader::GpuReader(const std::string& library) {
  if (library.empty()) return;
  auto loaded = std::make_unique<Library>();
  if (!loaded->load(library)) return;
  loaded->find_devices();
  if (!loaded->devices.empty()) library_ = std::move(loaded);
}

GpuReader::~GpuReader() = default;

std::size_t GpuReader::gpu_count() const { return library_ ? library_->devices.size() : 0; }

void GpuReader::read(Sample& sample) {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  std::vector<float>& utilization = sample.of(Metric::kGpuUtilization);
  std::vector<float>& memory = sample.of(Metric::kGpuMemory);
  utilization.assign(gpu_count(), unknown);
  memory.assign(gpu_count(), unknown);
  for (std::size_t i = 0; i < gpu_count(); ++i) {
    Utilization rates{};
    if (library_->get_utilization(library_->devices[i], &rates) == kSuccess) {
      utilization[i] = static_cast<float>(rates.gpu);
    }
    MemoryInfo info{};
    if (library_->get_memory(library_->devices[i], &info) == kSuccess && info.total > 0) {
      memory[i] = static_cast<float>(100.0 * static_cast<double>(info.used) /
                                     static_cast<double>(info.total));
    }
  }
}

}  // namespace tensortap
