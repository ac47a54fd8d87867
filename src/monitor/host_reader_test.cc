#include "monitor/host_reader.h"

#include <cmath>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "monitor/proc_for_test.h"

namespace tensortap {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

Sample read(HostReader& reader, double elapsed_s = 1.0) {
  Sample sample;
  reader.read(elapsed_s, sample);
  return sample;
}

TEST(HostReader, GivesEachCoresShareOfTheTimeSinceTheLastRead) {
  const FakeProc proc;
  proc.write("stat",
             "cpu 0 0 0 0\n"
             "cpu0 100 0 50 1000 10 0 0 0 0 0\n"
             "cpu1 100 0 50 1000 10 0 0 0 0 0\nintr 7\n");
  HostReader reader(proc.root(), proc.root());
  proc.write("stat",
             "cpu 0 0 0 0\n"
             "cpu0 130 10 60 1040 20 0 0 0 30 0\n"         // guest time (30) is part of user time
             "cpu1 100 0 50 1200 9 0 0 0 0 0\nintr 7\n");  // waiting time ran backwards
  const Sample sample = read(reader);
  EXPECT_THAT(sample.of(Metric::kCpuUtilization), ElementsAre(50.0f, 0.0f));
  EXPECT_THAT(sample.of(Metric::kIoWait), ElementsAre(10.0f, 0.0f));
  // No time went by: nothing can be said.
  EXPECT_THAT(read(reader).of(Metric::kCpuUtilization), IsEmpty());
}

TEST(HostReader, KeepsTheColumnOfACoreThatIsSwitchedOff) {
  const FakeProc proc;
  proc.write("stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\n");
  HostReader reader(proc.root(), proc.root());
  proc.write("stat", "cpu0 1 0 0 3 0 0 0 0\ncpu2 3 0 0 1 0 0 0 0\n");
  const std::vector<float> utilization = read(reader).of(Metric::kCpuUtilization);
  ASSERT_EQ(utilization.size(), 3u);
  EXPECT_EQ(utilization[0], 25.0f);
  EXPECT_TRUE(std::isnan(utilization[1]));
  EXPECT_EQ(utilization[2], 75.0f);
}

TEST(HostReader, ReadsMemory) {
  const FakeProc proc;
  proc.write("meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n");
  proc.write("self/status", "Name:\tpython\nVmRSS:\t     2048 kB\n");
  HostReader reader(proc.root(), proc.root());
  const Sample sample = read(reader);
  EXPECT_THAT(sample.of(Metric::kMemoryUsed), ElementsAre(60.0f));
  EXPECT_THAT(sample.of(Metric::kProcessMemory), ElementsAre(2097152.0f));
}

TEST(HostReader, CountsWholeDisksOnce) {
  const FakeProc proc;
  proc.write("block/sda/size", "1");
  const auto stats = [](int sectors) {
    const std::string n = std::to_string(sectors);
    std::string text;
    for (const char* name : {"sda", "sda1", "dm-0", "loop0"}) {
      text += std::string("   8 0 ") + name + " 1 2 " + n + " 4 5 6 " + n + "0 8 0 0 0\n";
    }
    return text;
  };
  proc.write("diskstats", stats(100));
  HostReader reader(proc.root(), proc.root());
  proc.write("diskstats", stats(110));
  const Sample sample = read(reader, 0.5);
  EXPECT_THAT(sample.of(Metric::kDiskRead), ElementsAre(10 * 512 / 0.5f));
  EXPECT_THAT(sample.of(Metric::kDiskWrite), ElementsAre(100 * 512 / 0.5f));
}

TEST(HostReader, CountsTheNetworkWithoutTheLoopback) {
  const FakeProc proc;
  const std::string titles = "Inter-| Receive | Transmit\n face |bytes packets| bytes\n";
  proc.write("net/dev", titles + "    lo: 1 0 0 0 0 0 0 0 1 0\n  eth0: 100 0 0 0 0 0 0 0 50 0\n");
  HostReader reader(proc.root(), proc.root());
  proc.write("net/dev", titles + "    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 300 0 0 0 0 0 0 0 90 0\n");
  const Sample sample = read(reader, 2.0);
  EXPECT_THAT(sample.of(Metric::kNetworkReceived), ElementsAre(100.0f));
  EXPECT_THAT(sample.of(Metric::kNetworkSent), ElementsAre(20.0f));
  // The interface went away, so the counter began anew: no rate, and none below zero.
  proc.write("net/dev", titles);
  EXPECT_THAT(read(reader).of(Metric::kNetworkSent), IsEmpty());
}

TEST(HostReader, CountsChildrenThatRunTheSameProgram) {
  const FakeProc proc;
  const std::string own = std::to_string(::getpid());
  const auto process = [&](const std::string& pid, const std::string& name,
                           const std::string& parent, const std::string& command) {
    proc.write(pid + "/stat", pid + " (" + name + ") S " + parent + " 1 1\n");
    proc.write(pid + "/cmdline", command);
  };
  proc.write("self/cmdline", "python train.py");
  process("11", "pt_data_worker", own, "whatever");
  process("12", "python", own, "python train.py");
  process("13", "a) S 1 (b", own, "python train.py");  // names hold anything
  process("14", "tensorboard", own, "tensorboard --logdir x");
  process("15", "pt_data_worker", "1", "python train.py");  // somebody else's
  HostReader reader(proc.root(), proc.root());
  EXPECT_THAT(read(reader).of(Metric::kWorkerProcesses), ElementsAre(3.0f));
}

TEST(HostReader, LeavesOutWhatCannotBeRead) {
  HostReader reader("/no/such/place", "/no/such/place");
  EXPECT_THAT(read(reader).values, Each(IsEmpty()));
  const FakeProc proc;
  for (const char* name : {"stat", "meminfo", "self/status", "diskstats", "net/dev"}) {
    proc.write(name, "cpu\ncpu99999999999999999 x\n: : :\nMemTotal: lots\n\xff\n");
  }
  HostReader confused(proc.root(), proc.root());
  EXPECT_THAT(read(confused).of(Metric::kCpuUtilization), IsEmpty());
}

TEST(HostReader, ReadsThisMachine) {
  HostReader reader;
  ::usleep(30000);
  const Sample sample = read(reader, 0.03);
  EXPECT_GE(sample.of(Metric::kProcessMemory).at(0), 1e6f);
  EXPECT_GT(sample.of(Metric::kMemoryUsed).at(0), 0.0f);
  EXPECT_LT(sample.of(Metric::kMemoryUsed).at(0), 100.0f);
  for (const float core : sample.of(Metric::kCpuUtilization)) EXPECT_FALSE(core < 0 || core > 100);
}

}  // namespace
}  // namespace tensortap
