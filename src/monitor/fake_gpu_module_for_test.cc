// Stands in for the driver's management library in tests: two GPUs with fixed numbers. The second
// does not tell its utilisation.
#include <cstring>

namespace {

struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

constexpr int kNotSupported = 3;
int first_gpu = 0;
int second_gpu = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = index == 0 ? &first_gpu : &second_gpu;
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::strncpy(uuid, device == &first_gpu ? "GPU-aaaa-1" : "GPU-bbbb-2", length);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  if (device == &second_gpu) return kNotSupported;
  *rates = {37, 5};
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, MemoryInfo* info) {
  *info = {1000, 0, device == &first_gpu ? 250ull : 500ull};
  return 0;
}

}  // extern "C"
