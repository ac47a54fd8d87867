#include "session/rule_journal.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

namespace tensortap {
namespace {

// Rule names come from scripts; file names must stay inside rules/ and be plain on every system.
std::string file_name_of(const std::string& text) {
  std::string name = text.empty() ? "rule" : text;
  for (char& c : name) {
    const bool is_plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    if (!is_plain) c = '_';
  }
  if (name.front() == '.') name.front() = '_';
  return name;
}

nlohmann::json parse_object(const std::optional<std::string>& text) {
  if (!text) return nlohmann::json::object();
  nlohmann::json parsed = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

}  // namespace

RuleJournal::RuleJournal(Storage& storage, std::string worker)
    : storage_(storage), worker_(std::move(worker)) {}

void RuleJournal::add(const RuleReport& report, std::vector<std::string> actions) noexcept {
  entries_.emplace_back();
  Entry& entry = entries_.back();
  entry.actions = std::move(actions);
  try {
    entry.stem = "rules/" + file_name_of(report.name);
    entry.stem = choose_stem(report.name);
    take_up(entry);
    storage_.put(entry.stem + ".json", status_json(entry, report));
  } catch (const std::exception& error) {
    count_failure(entry, error.what());
  }
}

void RuleJournal::append(std::size_t rule_index, const Finding& finding) noexcept {
  Entry& entry = entries_[rule_index];
  if (entry.lines >= kMaxLines) {
    ++entry.unwritten;
    return;
  }
  try {
    storage_.append_line(entry.stem + ".jsonl", to_json(finding));
    ++entry.lines;
  } catch (const std::exception& error) {
    count_failure(entry, error.what());
  }
}

void RuleJournal::write_status(std::size_t rule_index, const RuleReport& report) noexcept {
  Entry& entry = entries_[rule_index];
  try {
    storage_.put(entry.stem + ".json", status_json(entry, report));
  } catch (const std::exception& error) {
    count_failure(entry, error.what());
  }
}

void RuleJournal::append_outcome(std::size_t rule_index, const std::string& line) noexcept {
  Entry& entry = entries_[rule_index];
  if (entry.outcome_lines >= kMaxLines) return;
  ++entry.outcome_lines;
  try {
    storage_.append_line(entry.stem + ".actions.jsonl", line);
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, error.what());
  }
}

std::uint64_t RuleJournal::failed_writes() const {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.failed_writes;
  return sum;
}

std::string RuleJournal::choose_stem(const std::string& rule) const {
  const std::string plain = "rules/" + file_name_of(rule);
  std::string stem = plain;
  const nlohmann::json held = parse_object(storage_.get(plain + ".json"));
  if (held.contains("worker") && held["worker"] != worker_) stem += "." + file_name_of(worker_);
  // Two rule names may differ only in letters that file names do not keep.
  const std::string base = stem;
  for (int number = 2; is_taken(stem); ++number) stem = fmt::format("{}_{}", base, number);
  return stem;
}

bool RuleJournal::is_taken(const std::string& stem) const {
  // The last entry is the one that looks for a name.
  return std::any_of(entries_.begin(), entries_.end() - 1,
                     [&](const Entry& entry) { return entry.stem == stem; });
}

void RuleJournal::take_up(Entry& entry) {
  const std::string name = entry.stem + ".jsonl";
  const std::optional<std::string> content = storage_.get(name);
  if (!content) return;
  entry.lines = static_cast<std::uint64_t>(std::count(content->begin(), content->end(), '\n'));
  // A line that a kill or a full disk cut short would swallow the next one.
  if (!content->empty() && content->back() != '\n') {
    storage_.put(name, content->substr(0, content->rfind('\n') + 1));
  }
  // The status counts findings beyond kMaxLines too, but may be older than the last lines.
  const nlohmann::json status = parse_object(storage_.get(entry.stem + ".json"));
  std::uint64_t counted = 0;
  if (status.contains("finding_count") && status["finding_count"].is_number_unsigned()) {
    counted = status["finding_count"].get<std::uint64_t>();
  }
  entry.earlier_findings = std::max(entry.lines, counted);
}

std::string RuleJournal::status_json(const Entry& entry, const RuleReport& report) const {
  JsonWriter json(2);
  json.begin_object();
  json.field("name", report.name);
  json.field("status", rule_status_name(report.status));
  json.field("worker", worker_);
  json.field("updated_ns", wall_time_ns());
  json.field("finding_count", entry.earlier_findings + report.finding_count);
  json.field("earlier_finding_count", entry.earlier_findings);
  json.field("line_count", entry.lines);
  json.field("unwritten_finding_count", entry.unwritten);
  json.field("failed_writes", entry.failed_writes);
  json.key("actions").begin_array();
  for (const std::string& action : entry.actions) json.value(action);
  json.end_array();
  json.key("report").raw(to_json(report));
  json.end_object();
  return json.text() + "\n";
}

void RuleJournal::count_failure(Entry& entry, const char* what) noexcept {
  if (++entry.failed_writes > 1) return;
  try {
    log(LogLevel::kWarning,
        fmt::format("findings of a rule cannot be written; the training goes on: {}", what));
  } catch (const std::exception&) {
    // No memory for the message: the count still tells.
  }
}

}  // namespace tensortap
