// What a case file cannot say: that time passes without a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/engine.h"
#include "trial/run_for_test.h"

namespace tensortap {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(StragglerRank, TellsThatAllWorkersStandStill) {
  RuleEngine engine;
  engine.add({"StragglerRank", {}, {}});
  std::vector<Finding> findings;
  engine.set_finding_handler(
      [&](std::size_t, const Finding& finding) { findings.push_back(finding); });
  RecordMaker makers[2];
  const auto check_at = [&](std::int64_t step, std::int64_t seconds) {
    StepInfo info = global_step(step);
    info.wall_time_ns = seconds * kSecond;
    const auto first = makers[0].make(info, {{.name = "step_time", .values = {1.0}}});
    const auto second = makers[1].make(info, {{.name = "step_time", .values = {1.0}}});
    const WorkerStep workers[] = {{"worker_0", 0, first.get(), &makers[0].dictionary()},
                                  {"worker_1", 1, second.get(), &makers[1].dictionary()}};
    engine.check({info.step, info.mode, info.mode_step, workers});
  };
  check_at(0, 1000);
  check_at(1, 1010);  // a step of 10 s: silence of 100 s is a hang
  engine.pass_time(1109 * kSecond);
  EXPECT_THAT(findings, testing::IsEmpty());
  engine.pass_time(1111 * kSecond);
  engine.pass_time(1120 * kSecond);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].step, 1);
  EXPECT_EQ(findings[0].statistic, "silence");
  EXPECT_DOUBLE_EQ(findings[0].threshold, 100.0);
  check_at(2, 1121);
  engine.pass_time(3000 * kSecond);
  EXPECT_EQ(findings.size(), 2u);  // another silence, told again
}

}  // namespace
}  // namespace tensortap
