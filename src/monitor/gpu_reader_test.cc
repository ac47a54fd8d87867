#include "monitor/gpu_reader.h"

#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kFakeLibrary = TENSORTAP_TEST_MODULES "/fake_gpu_module.so";

// CUDA_VISIBLE_DEVICES as long as the object lives; null takes it away.
class VisibleDevices {
 public:
  explicit VisibleDevices(const char* value) {
    if (const char* old = std::getenv(kName)) before_ = old;
    value != nullptr ? setenv(kName, value, 1) : unsetenv(kName);
  }
  ~VisibleDevices() { before_.empty() ? unsetenv(kName) : setenv(kName, before_.c_str(), 1); }
  VisibleDevices(const VisibleDevices&) = delete;
  VisibleDevices& operator=(const VisibleDevices&) = delete;

 private:
  static constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  std::string before_;
};

std::vector<float> memory_of_visible(const char* visible) {
  const VisibleDevices devices(visible);
  GpuReader reader(kFakeLibrary);
  Sample sample;
  reader.read(sample);
  return sample.of(Metric::kGpuMemory);
}

TEST(GpuReader, ReadsEachGpu) {
  const VisibleDevices devices(nullptr);
  GpuReader reader(kFakeLibrary);
  ASSERT_EQ(reader.gpu_count(), 2u);
  Sample sample;
  reader.read(sample);
  EXPECT_EQ(sample.of(Metric::kGpuUtilization)[0], 37.0f);
  EXPECT_TRUE(std::isnan(sample.of(Metric::kGpuUtilization)[1]));  // it does not say
  EXPECT_THAT(sample.of(Metric::kGpuMemory), ElementsAre(25.0f, 50.0f));
}

TEST(GpuReader, LooksOnlyAtGpusThatTheProcessMaySee) {
  EXPECT_THAT(memory_of_visible("1"), ElementsAre(50.0f));
  EXPECT_THAT(memory_of_visible("1,0"), ElementsAre(25.0f, 50.0f));
  EXPECT_THAT(memory_of_visible("0,-1,1"), ElementsAre(25.0f));  // CUDA stops at -1
  EXPECT_THAT(memory_of_visible("GPU-bbbb"), ElementsAre(50.0f));
  EXPECT_THAT(memory_of_visible(""), IsEmpty());
}

TEST(GpuReader, IsSilentWithoutALibrary) {
  for (const char* library : {"", "libno-such-library.so.1", "libc.so.6"}) {
    GpuReader reader(library);
    Sample sample;
    reader.read(sample);
    EXPECT_EQ(reader.gpu_count(), 0u) << library;
    EXPECT_THAT(sample.of(Metric::kGpuUtilization), IsEmpty()) << library;
  }
}

}  // namespace
}  // namespace tensortap
