// StalledTrainingRule waiting for a training, by a clock of the test's own. What it says of a
// recorded run is in tests/rules/.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/registry.h"
#include "trial/record_for_test.h"

namespace tensortap {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Times in seconds on the watcher's clock.
class Watcher {
 public:
  explicit Watcher(const std::string& threshold, const std::string& startup_grace = "") {
    const RuleDescriptor& descriptor = find_rule("StalledTrainingRule");
    rule_ =
        descriptor.create(Parameters("rule", descriptor.parameters,
                                     {{"threshold", threshold}, {"startup_grace", startup_grace}}));
  }

  void step_at(std::int64_t second) {
    wait_until(second);
    StepInfo info = global_step(next_step_++);
    info.wall_time_ns = second * kSecond;
    const auto record = maker_.make(info, {{"loss", {1.0}}});
    const WorkerStep worker{"worker_0", 0, record.get(), &maker_.dictionary()};
    std::vector<Finding> findings;
    rule_->check({info.step, info.mode, info.mode_step, {&worker, 1}}, findings);
    note(findings, second);
  }

  void wait_until(std::int64_t second) {
    for (; now_ <= second; ++now_) {
      std::vector<Finding> findings;
      rule_->pass_time(now_ * kSecond, findings);
      note(findings, now_);
    }
  }

  // (when, the finding's step)
  const std::vector<std::pair<std::int64_t, std::int64_t>>& fired() const { return fired_; }

 private:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  void note(const std::vector<Finding>& findings, std::int64_t second) {
    for (const Finding& finding : findings) fired_.emplace_back(second, finding.step);
  }

  std::unique_ptr<Rule> rule_;
  RecordMaker maker_;
  std::int64_t now_ = 0;
  std::int64_t next_step_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> fired_;
};

// R14 vectors. The watcher looks once a second, so a step that comes at 40 has been missed since
// 41 at the latest: a threshold of 60 is reached at 101.
TEST(StalledTraining, FiresWhenNothingComes) {
  Watcher watcher("60");
  for (const std::int64_t second : {0, 20, 40}) watcher.step_at(second);
  watcher.wait_until(100);
  EXPECT_THAT(watcher.fired(), IsEmpty());
  watcher.wait_until(300);
  EXPECT_THAT(watcher.fired(), ElementsAre(std::pair(101, 2)));  // once
}

TEST(StalledTraining, IsSilentWhileStepsComeAndAfterTheEnd) {
  Watcher watcher("60");
  for (const std::int64_t second : {0, 50, 100, 150}) watcher.step_at(second);
  watcher.wait_until(90 + 100);  // the run ends, nobody waits any more
  EXPECT_THAT(watcher.fired(), IsEmpty());
}

TEST(StalledTraining, APauseIsToldOnceAndTheNextOneAgain) {
  Watcher watcher("60");
  watcher.step_at(0);
  watcher.step_at(100);
  watcher.step_at(200);
  EXPECT_THAT(watcher.fired(), ElementsAre(std::pair(61, 0), std::pair(161, 1)));
}

TEST(StalledTraining, TheFirstStepHasAGraceOfItsOwn) {
  Watcher patient("60", "100");
  patient.wait_until(99);
  EXPECT_THAT(patient.fired(), IsEmpty());
  patient.wait_until(200);
  EXPECT_THAT(patient.fired(), ElementsAre(std::pair(100, 0)));
  Watcher usual("60");
  usual.wait_until(200);
  EXPECT_THAT(usual.fired(), ElementsAre(std::pair(60, 0)));
}

}  // namespace
}  // namespace tensortap
