// For tests of rules: runs them over the same steps three ways, in this process, following a run on
// disk that grows, and over the closed run, and compares what they find. Header only, so that no
// library carries it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "rules/engine.h"
#include "rules/growing_run_for_test.h"
#include "trial/record_for_test.h"
#include "trial/trial.h"

namespace tensortap {

struct RuleOutcome {
  std::vector<std::string> findings;  // as JSON, since a NaN does not equal itself
  std::vector<RuleReport> reports;
};

// An engine with rules, which writes down what is found.
class RuleChecker {
 public:
  explicit RuleChecker(const std::vector<RuleSpec>& specs) {
    for (const RuleSpec& spec : specs) engine_.add(spec);
    engine_.set_finding_handler([this](std::size_t, const Finding& finding) {
      outcome_.findings.push_back(to_json(finding));
    });
  }
  RuleEngine& engine() { return engine_; }
  RuleOutcome finish() {
    engine_.finish();
    outcome_.reports = engine_.reports();
    return outcome_;
  }

 private:
  RuleEngine engine_;
  RuleOutcome outcome_;
};

// `rows` by step, then worker.
inline RuleOutcome check_in_process(const std::vector<RuleSpec>& specs,
                                    const std::vector<TestRow>& rows) {
  RuleChecker checker(specs);
  std::map<std::string, RecordMaker> makers;
  for (const TestRow& row : rows) makers[row.worker];
  for (std::size_t i = 0; i < rows.size();) {
    const StepInfo& info = rows[i].info;
    std::vector<std::shared_ptr<const StepRecord>> records;
    std::vector<WorkerStep> workers;
    for (; i < rows.size() && rows[i].info.step == info.step; ++i) {
      const auto maker = makers.find(rows[i].worker);
      records.push_back(maker->second.make(rows[i].info, rows[i].tensors));
      workers.push_back({maker->first,
                         static_cast<std::uint32_t>(std::distance(makers.begin(), maker)),
                         records.back().get(), &maker->second.dictionary()});
    }
    checker.engine().check({info.step, info.mode, info.mode_step, workers});
  }
  return checker.finish();
}

inline RuleOutcome check_run(const std::vector<RuleSpec>& specs, const std::string& path,
                             bool follow) {
  RuleChecker checker(specs);
  checker.engine().check_trial(*Trial::open(path), {}, {}, follow);
  return checker.finish();
}

inline void expect_same(const RuleOutcome& is, const RuleOutcome& in_process) {
  EXPECT_EQ(is.findings, in_process.findings);
  ASSERT_EQ(is.reports.size(), in_process.reports.size());
  for (std::size_t i = 0; i < is.reports.size(); ++i) {
    EXPECT_EQ(to_json(is.reports[i]), to_json(in_process.reports[i]));
  }
}

// Gives what was found in process, after comparing the other two ways with it.
inline RuleOutcome check_three_ways(const std::vector<RuleSpec>& specs,
                                    const std::vector<TestRow>& rows) {
  const RuleOutcome in_process = check_in_process(specs, rows);
  GrowingRun run(rows);
  run.write_first_step();
  std::thread training([&] { run.write_rest(); });
  const RuleOutcome following = check_run(specs, run.path(), true);
  training.join();
  expect_same(following, in_process);
  expect_same(check_run(specs, run.path(), false), in_process);
  return in_process;
}

}  // namespace tensortap
