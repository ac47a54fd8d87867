#include "rules/plugin.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "rules/engine.h"
#include "rules/plugin_api.h"
#include "trial/run_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using testing::HasSubstr;

// Built beside the tests out of examples/plugin.
std::string example_plugin() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "loss_below.so").string();
}

std::string error_of(const std::string& path) {
  try {
    const RulePlugin plugin(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(RulePlugin, ItsRulesAreRulesLikeAnyOther) {
  RuleEngine engine;
  engine.add_plugin(example_plugin());
  engine.add({"loss_below", {{"goal", "0.5"}, {"start_step", "1"}}, {}});
  auto run = std::make_shared<MemoryRun>();
  for (int step = 0; step < 4; ++step) {
    run->write(global_step(step), {{"loss", {0.4 - 0.1 * step}, {"losses"}}});
  }
  Trial trial(run);
  EXPECT_EQ(engine.check_trial(trial), 3u);
  engine.finish();
  const RuleReport report = engine.reports()[0];
  EXPECT_EQ(report.name, "LossBelow");
  EXPECT_EQ(report.first_finding->message, "loss is 0.3 at step 1, below the goal of 0.5.");
  EXPECT_THROW(engine.add({"LossBelow", {}, {}}), Error);  // its goal is missing
}

TEST(RulePlugin, WhatDoesNotLoadIsOneClearLine) {
  EXPECT_EQ(error_of("/no/such.so"), "there is no such plugin file: /no/such.so");
  const std::string path =
      testing::TempDir() + "tensortap_plugin_" + std::to_string(::getpid()) + ".so";
  std::ofstream(path) << "no shared object";
  EXPECT_THAT(error_of(path), HasSubstr("the plugin does not load"));
  EXPECT_THAT(error_of(path), testing::EndsWith(path));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of(std::filesystem::read_symlink("/proc/self/exe").string()),
              HasSubstr("the plugin does not load"));
  EXPECT_THROW(RuleEngine().add({"LossBelow", {{"goal", "1"}}, {}}), Error);
}

TEST(RulePlugin, AnotherInterfaceIsNotEqual) {
  RuleInterface other;
  ++other.version;
  EXPECT_FALSE(other == RuleInterface());
}

}  // namespace
}  // namespace tensortap
