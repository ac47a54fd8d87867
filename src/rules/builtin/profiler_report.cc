// ProfilerReport: all rules over the machine at once.
#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/text.h"
#include "rules/registry.h"
#include "rules/system_rule.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ProfilerReport";

constexpr std::string_view kDoc =
    R"(Runs BatchSize, CPUBottleneck, Dataloader, GPUMemoryIncrease, IOBottleneck, LoadBalancing,
LowGPUUtilization, MaxInitializationTime, OverallSystemUsage and StepOutlier, and fires once, when
the run has ended, if any of them found something. Its finding and its status name what each said.

Parameters of those rules are given as `<Rule>_<parameter>`, in any spelling of upper and lower
case: `CPUBottleneck_cpu_threshold=80`. A rule that fails is left out from then on and named; the
others go on.

Source: SageMaker Debugger's rule of that name. `opt_out_telemetry` is accepted: nothing is sent
anywhere.)";

constexpr std::array<std::string_view, 10> kRules = {
    "BatchSize",          "CPUBottleneck", "Dataloader",        "GPUMemoryIncrease",
    "IOBottleneck",       "LoadBalancing", "LowGPUUtilization", "MaxInitializationTime",
    "OverallSystemUsage", "StepOutlier"};

constexpr std::string_view kFamilyDoc = "Parameters of that rule.";

constexpr std::array<ParameterDescriptor, 12> kParameters = {{
    {"opt_out_telemetry", ParameterType::kBool, "false", "Accepted, without effect."},
    kScanIntervalParameter,
    {"BatchSize_*", ParameterType::kString, "", kFamilyDoc},
    {"CPUBottleneck_*", ParameterType::kString, "", kFamilyDoc},
    {"Dataloader_*", ParameterType::kString, "", kFamilyDoc},
    {"GPUMemoryIncrease_*", ParameterType::kString, "", kFamilyDoc},
    {"IOBottleneck_*", ParameterType::kString, "", kFamilyDoc},
    {"LoadBalancing_*", ParameterType::kString, "", kFamilyDoc},
    {"LowGPUUtilization_*", ParameterType::kString, "", kFamilyDoc},
    {"MaxInitializationTime_*", ParameterType::kString, "", kFamilyDoc},
    {"OverallSystemUsage_*", ParameterType::kString, "", kFamilyDoc},
    {"StepOutlier_*", ParameterType::kString, "", kFamilyDoc},
}};

constexpr std::array<std::string_view, 1> kCauses = {"see the rules that are named"};

constexpr std::array<std::string_view, 2> kCollections = {"system", "timings"};

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// One of the rules, behind a fence.
struct Watched {
  std::string_view name;
  std::unique_ptr<Rule> rule;
  std::uint64_t findings = 0;
  std::string first_message;
  std::string error;
};

Watched make_watched(std::string_view name, const Parameters& all) {
  const std::string prefix = lower(name) + "_";
  std::map<std::string, std::string> own;
  for (const auto& [key, value] : all.effective()) {
    const std::string folded = lower(key);
    if (folded.compare(0, prefix.size(), prefix) == 0) own[folded.substr(prefix.size())] = value;
  }
  const RuleDescriptor& descriptor = find_rule(name);
  const Parameters parameters(fmt::format("rule {} of {}", name, kName), descriptor.parameters,
                              own);
  Watched watched;
  watched.name = descriptor.name;
  watched.rule = descriptor.create(parameters);
  return watched;
}

class ProfilerReport : public Rule {
 public:
  explicit ProfilerReport(const Parameters& parameters) {
    for (const std::string_view name : kRules) watched_.push_back(make_watched(name, parameters));
  }

  void check(const StepView& step, std::vector<Finding>&) override {
    remember(step);
    for (Watched& watched : watched_) {
      fenced(watched, [&] { watched.rule->check(step, scratch_); });
    }
  }
  void observe(const StepView& step) override {
    remember(step);
    for (Watched& watched : watched_) {
      fenced(watched, [&] { watched.rule->observe(step); });
    }
  }
  void pass_time(std::int64_t now_ns, std::vector<Finding>&) override {
    for (Watched& watched : watched_) {
      fenced(watched, [&] { watched.rule->pass_time(now_ns, scratch_); });
    }
  }

  void finish(std::vector<Finding>& findings) override {
    for (Watched& watched : watched_) {
      fenced(watched, [&] { watched.rule->finish(scratch_); });
    }
    std::vector<std::string> said;
    for (const Watched& watched : watched_) {
      if (watched.findings > 0) {
        said.push_back(
            fmt::format("{} ({}): {}", watched.name, watched.findings, watched.first_message));
      }
    }
    if (said.empty()) return;
    Finding finding = last_;
    finding.statistic = "rules_that_fired";
    finding.observed = static_cast<double>(said.size());
    finding.message = fmt::format("{} of {} rules found something. {}", said.size(),
                                  watched_.size(), join(said, " "));
    findings.push_back(std::move(finding));
  }

  // Judged is what any of them judged.
  Coverage coverage() const override {
    Coverage all;
    for (const Watched& watched : watched_) {
      const Coverage one = watched.rule->coverage();
      all.matched_tensors = std::max(all.matched_tensors, one.matched_tensors);
      all.checked_tensor_steps = std::max(all.checked_tensor_steps, one.checked_tensor_steps);
    }
    all.checked_steps = steps_;
    return all;
  }

  std::string selection() const override { return "collection system or timings"; }
  std::vector<std::string> wanted_collections() const override { return {"system", "timings"}; }

  std::string summary() const override {
    std::vector<std::string> silent;
    std::vector<std::string> blind;
    std::vector<std::string> parts;
    for (const Watched& watched : watched_) {
      const std::string name(watched.name);
      const std::string summary = watched.rule->summary();
      if (!watched.error.empty()) {
        parts.push_back(fmt::format("{} failed: {}", name, watched.error));
      } else if (!summary.empty()) {
        parts.push_back(fmt::format("{}: {}", name, summary));
      } else if (watched.rule->coverage().matched_tensors == 0) {
        blind.push_back(name);
      } else if (watched.findings == 0) {
        silent.push_back(name);
      }
    }
    if (!blind.empty()) parts.insert(parts.begin(), "nothing to look at: " + join(blind, ", "));
    if (!silent.empty()) parts.insert(parts.begin(), "nothing found: " + join(silent, ", "));
    return join(parts, "; ");
  }

 private:
  template <typename Call>
  void fenced(Watched& watched, const Call& call) {
    if (!watched.error.empty()) return;
    scratch_.clear();
    try {
      call();
    } catch (const std::exception& error) {
      watched.error = error.what();
      return;
    }
    if (!scratch_.empty() && watched.findings == 0) watched.first_message = scratch_[0].message;
    watched.findings += scratch_.size();
  }

  void remember(const StepView& step) {
    ++steps_;
    last_ = finding_at(step, "", step.workers.empty() ? "" : step.workers[0].worker);
  }

  std::vector<Watched> watched_;
  std::vector<Finding> scratch_;
  Finding last_;  // at the newest step
  std::uint64_t steps_ = 0;
};

}  // namespace

const RuleDescriptor& profiler_report_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "All rules over the machine at once, with one verdict at the end.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"Time and money are lost on a machine that waits.", kCauses,
                 "Look at the rules that are named, each for itself."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<ProfilerReport>,
  };
  return kDescriptor;
}

}  // namespace tensortap
