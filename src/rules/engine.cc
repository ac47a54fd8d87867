#include "rules/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "rules/registry.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

// Between looks for new steps: soon after there was one, then less and less often.
constexpr std::chrono::milliseconds kShortestWait(1);
constexpr std::chrono::milliseconds kLongestWait(64);

// What SageMaker sends along with every rule, and what means nothing here.
constexpr std::array<std::string_view, 2> kIgnoredParameters = {"base_trial", "rule_to_invoke"};

}  // namespace

std::string_view rule_status_name(RuleStatus status) {
  switch (status) {
    case RuleStatus::kInProgress:
      return "InProgress";
    case RuleStatus::kNoIssuesFound:
      return "NoIssuesFound";
    case RuleStatus::kIssuesFound:
      return "IssuesFound";
    case RuleStatus::kNoData:
      return "NoData";
    case RuleStatus::kError:
      return "Error";
    case RuleStatus::kStopped:
      return "Stopped";
  }
  return "";
}

std::string to_json(const RuleReport& report) {
  JsonWriter json;
  json.begin_object()
      .field("name", report.name)
      .field("status", rule_status_name(report.status))
      .field("finding_count", report.finding_count);
  json.key("first_finding");
  report.first_finding ? json.raw(to_json(*report.first_finding)) : json.null();
  json.key("coverage")
      .begin_object()
      .field("checked_steps", report.coverage.checked_steps)
      .field("matched_tensors", report.coverage.matched_tensors)
      .field("checked_tensor_steps", report.coverage.checked_tensor_steps)
      .field("skipped_steps", report.coverage.skipped_steps)
      .field("valueless_tensor_steps", report.coverage.valueless_tensor_steps)
      .end_object();
  json.field("message", report.message);
  json.key("parameters").begin_object();
  for (const auto& [name, value] : report.parameters) json.field(name, value);
  json.end_object().end_object();
  return json.text();
}

void RuleEngine::add_plugin(const std::string& path) { plugins_.emplace_back(path); }

std::size_t RuleEngine::add(const RuleSpec& spec) {
  std::vector<const RuleDescriptor*> known = builtin_rules();
  for (const RulePlugin& plugin : plugins_) {
    known.insert(known.end(), plugin.rules().begin(), plugin.rules().end());
  }
  const RuleDescriptor& descriptor = find_rule(spec.name, known);
  std::vector<ParameterDescriptor> declared(descriptor.parameters.begin(),
                                            descriptor.parameters.end());
  const auto common = common_rule_parameters();
  declared.insert(declared.end(), common.begin(), common.end());
  std::map<std::string, std::string> given = spec.parameters;
  for (const std::string_view ignored : kIgnoredParameters) given.erase(std::string(ignored));
  const Parameters parameters(fmt::format("rule {}", descriptor.name), declared, given);
  Entry entry;
  entry.rule = descriptor.create(parameters);
  entry.start_step = parameters.get_int("start_step");
  if (parameters.is_set("end_step")) entry.end_step = parameters.get_int("end_step");
  entry.report.parameters = parameters.effective();
  return insert(std::string(descriptor.name), std::move(entry));
}

std::size_t RuleEngine::add(std::string name, std::unique_ptr<Rule> rule) {
  Entry entry;
  entry.rule = std::move(rule);
  entry.start_step = std::numeric_limits<std::int64_t>::min();
  return insert(std::move(name), std::move(entry));
}

std::size_t RuleEngine::insert(std::string name, Entry entry) {
  const auto is_taken = [&](const std::string& wanted) {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& other) { return other.report.name == wanted; });
  };
  entry.report.name = name;
  for (int number = 2; is_taken(entry.report.name); ++number) {
    entry.report.name = fmt::format("{}_{}", name, number);
  }
  entries_.push_back(std::move(entry));
  is_noting_ = true;
  return entries_.size() - 1;
}

void RuleEngine::set_finding_handler(FindingHandler handler) { handler_ = std::move(handler); }

void RuleEngine::set_failure_handler(FailureHandler handler) {
  failure_handler_ = std::move(handler);
}

void RuleEngine::check(const StepView& step) {
  ++step_count_;
  for (std::size_t index = 0; index < entries_.size(); ++index) check_entry(index, step);
  if (is_noting_) note_collections(step);
}

void RuleEngine::check_entry(std::size_t index, const StepView& step) {
  Entry& entry = entries_[index];
  RuleReport& report = entry.report;
  if (report.status == RuleStatus::kError) return;
  if (entry.end_step && step.step >= *entry.end_step) return;
  scratch_.clear();
  try {
    if (step.step < entry.start_step) {
      entry.rule->observe(step);
    } else {
      entry.rule->check(step, scratch_);
    }
  } catch (const std::exception& error) {
    report.status = RuleStatus::kError;
    report.message = fmt::format("at step {}: {}", step.step, error.what());
    if (failure_handler_) failure_handler_(index, report);
    return;  // what it found in the middle of a failure is not to be trusted
  }
  hand_out_findings(index);
}

void RuleEngine::pass_time(std::int64_t now_ns) {
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    if (entry.report.status == RuleStatus::kError) continue;
    scratch_.clear();
    try {
      entry.rule->pass_time(now_ns, scratch_);
    } catch (const std::exception& error) {
      entry.report.status = RuleStatus::kError;
      entry.report.message = fmt::format("while waiting for a step: {}", error.what());
      continue;
    }
    hand_out_findings(index);
  }
}

void RuleEngine::hand_out_findings(std::size_t index) {
  RuleReport& report = entries_[index].report;
  for (Finding& finding : scratch_) {
    finding.rule = report.name;
    report.status = RuleStatus::kIssuesFound;
    ++report.finding_count;
    if (!report.first_finding) report.first_finding = finding;
    if (handler_) handler_(index, finding);
  }
}

void RuleEngine::note_collections(const StepView& step) {
  for (const WorkerStep& worker : step.workers) {
    if (noted_tensors_.size() <= worker.worker_index) {
      noted_tensors_.resize(worker.worker_index + 1);
    }
    std::vector<bool>& noted = noted_tensors_[worker.worker_index];
    const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
    if (noted.size() < infos.size()) noted.resize(infos.size(), false);
    for (const StatisticsRow& row : worker.record->rows) {
      if (row.tensor >= noted.size() || noted[row.tensor]) continue;
      noted[row.tensor] = true;
      const std::vector<std::string>& collections = infos[row.tensor].collections;
      noted_collections_.insert(collections.begin(), collections.end());
    }
  }
  is_noting_ = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.rule->coverage().matched_tensors == 0;
  });
}

std::uint32_t RuleEngine::worker_index(std::size_t position, const std::string& worker) {
  if (position < worker_names_.size() && worker_names_[position] == worker) {
    return static_cast<std::uint32_t>(position);
  }
  const auto known = std::find(worker_names_.begin(), worker_names_.end(), worker);
  const auto index = static_cast<std::uint32_t>(known - worker_names_.begin());
  if (known == worker_names_.end()) worker_names_.push_back(worker);
  return index;
}

void RuleEngine::check_step(Trial& trial, std::int64_t step) {
  const std::vector<const WorkerSource*> workers = trial.source().workers();
  const std::vector<std::shared_ptr<const StepRecord>> records = trial.records(step);
  worker_steps_.clear();
  for (std::size_t w = 0; w < records.size(); ++w) {
    if (records[w] == nullptr) continue;
    const std::string& name = workers[w]->name();
    worker_steps_.push_back(
        {name, worker_index(w, name), records[w].get(), &workers[w]->dictionary(), &trial});
  }
  if (worker_steps_.empty()) return;
  const StepInfo& info = worker_steps_.front().record->info;
  check({step, info.mode, info.mode_step, worker_steps_});
}

std::uint64_t RuleEngine::check_trial(Trial& trial, std::optional<std::int64_t> first_step,
                                      std::optional<std::int64_t> last_step, bool follow,
                                      const std::function<bool()>& should_stop) {
  const std::uint64_t count_before = finding_count();
  std::int64_t next = first_step.value_or(std::numeric_limits<std::int64_t>::min());
  while (true) {
    // Asked before the steps are: what a worker wrote before it ended is then among them.
    const bool has_ended = trial.has_ended();
    const std::vector<std::int64_t> steps = trial.complete_steps();
    for (auto at = std::lower_bound(steps.begin(), steps.end(), next); at != steps.end(); ++at) {
      const bool is_past_end = last_step && *at >= *last_step;
      if (is_past_end || (should_stop && should_stop())) return finding_count() - count_before;
      check_step(trial, *at);
      next = *at + 1;
    }
    if (!follow || has_ended) return finding_count() - count_before;
    for (auto wait = kShortestWait; !trial.refresh(); wait = std::min(2 * wait, kLongestWait)) {
      if (should_stop && should_stop()) return finding_count() - count_before;
      pass_time(wall_time_ns());
      std::this_thread::sleep_for(wait);
    }
  }
}

std::uint64_t RuleEngine::finding_count() const {
  std::uint64_t count = 0;
  for (const Entry& entry : entries_) count += entry.report.finding_count;
  return count;
}

void RuleEngine::finish_entry(std::size_t index) {
  RuleReport& report = entries_[index].report;
  if (report.status == RuleStatus::kError) return;
  scratch_.clear();
  try {
    entries_[index].rule->finish(scratch_);
  } catch (const std::exception& error) {
    report.status = RuleStatus::kError;
    report.message = fmt::format("at the end: {}", error.what());
    return;
  }
  hand_out_findings(index);
}

void RuleEngine::finish(bool is_stopped) {
  if (std::exchange(is_finished_, true)) return;
  for (std::size_t index = 0; index < entries_.size(); ++index) finish_entry(index);
  for (Entry& entry : entries_) {
    if (entry.report.status != RuleStatus::kInProgress) continue;
    const Coverage coverage = entry.rule->coverage();
    if (coverage.matched_tensors > 0 && coverage.checked_tensor_steps == 0 &&
        coverage.valueless_tensor_steps > 0) {
      entry.report.status = RuleStatus::kNoData;
      entry.report.message = fmt::format(
          "{} matched, but it needs raw values and none were kept: save them with "
          "ReductionConfig(save_raw_tensor=True)",
          entry.rule->selection());
    } else if (std::string missing = entry.rule->missing_input();
               coverage.matched_tensors > 0 && !missing.empty()) {
      entry.report.status = RuleStatus::kNoData;
      entry.report.message = std::move(missing);
    } else if (coverage.matched_tensors > 0 &&
               coverage.checked_steps + coverage.skipped_steps > 0) {
      entry.report.status = is_stopped ? RuleStatus::kStopped : RuleStatus::kNoIssuesFound;
      entry.report.message = entry.rule->summary();
    } else {
      entry.report.status = RuleStatus::kNoData;
      entry.report.message = no_data_message(entry);
    }
  }
}

std::string RuleEngine::no_data_message(const Entry& entry) const {
  const Coverage coverage = entry.rule->coverage();
  if (step_count_ == 0) return "the run has no complete step";
  if (coverage.checked_steps + coverage.skipped_steps == 0) {
    return fmt::format(
        "none of the {} steps is one that the rule judges: see its start_step, end_step and mode",
        step_count_);
  }
  if (std::string known = entry.rule->not_applicable(); !known.empty()) return known;
  const std::vector<std::string> noted(noted_collections_.begin(), noted_collections_.end());
  const std::vector<std::string> wanted = entry.rule->wanted_collections();
  const std::string start = fmt::format("no tensor matched {}", entry.rule->selection());
  if (noted.empty()) return start + "; no tensor of any collection was saved";
  const bool is_one_saved = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return noted_collections_.count(name) != 0;
  });
  if (is_one_saved) {
    return start + "; tensors of it were saved, but none of the kind that the rule judges";
  }
  if (wanted.empty()) return start + "; the saved collections are: " + join(noted, ", ");
  return fmt::format("{}; {} among the saved collections: {}", start,
                     wanted.size() == 1 ? "it is not" : "none of them is", join(noted, ", "));
}

std::size_t RuleEngine::rule_count() const { return entries_.size(); }

std::vector<RuleReport> RuleEngine::reports() const {
  std::vector<RuleReport> reports;
  for (const Entry& entry : entries_) {
    reports.push_back(entry.report);
    reports.back().coverage = entry.rule->coverage();
  }
  return reports;
}

}  // namespace tensortap
