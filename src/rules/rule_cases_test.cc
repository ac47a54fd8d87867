// Runs the cases in tests/rules/*.json three ways: on the steps of this process, following a run
// that grows, and over the closed run. All three must find the same, and what the case says. docs:
// the keys are explained in read_case.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rules/registry.h"
#include "rules/three_ways_for_test.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kCasesFolder = "tests/rules";

struct Case {
  std::string rule;
  Json json;
  std::map<std::string, std::string> parameters;
  std::vector<TestRow> rows;  // by step, then worker
};

double number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(text == "Infinity" || text == "-Infinity") << text;
  return text == "Infinity" ? infinity : -infinity;
}

void append_numbers(const Json& json, std::size_t depth, TestTensor& tensor) {
  if (!json.is_array()) {
    tensor.values.push_back(number(json));
    return;
  }
  if (tensor.shape.size() <= depth) tensor.shape.push_back(static_cast<std::int64_t>(json.size()));
  for (const Json& element : json) append_numbers(element, depth + 1, tensor);
}

// Lists may say {"repeat": element, "count": n} and {"from": first, "by": difference, "count": n}
// in the place of n elements.
Json expanded(const Json& json) {
  if (!json.is_array()) return json;
  Json list = Json::array();
  for (const Json& element : json) {
    if (!element.is_object()) {
      list.push_back(expanded(element));
      continue;
    }
    const int count = element.at("count").get<int>();
    for (int i = 0; i < count; ++i) {
      list.push_back(element.contains("repeat") ? element["repeat"]
                                                : Json(element.at("from").get<double>() +
                                                       i * element.at("by").get<double>()));
    }
  }
  return list;
}

// A number, a list, a list of lists, ...: the nesting is the shape. A string that is no number is a
// text.
TestTensor tensor_from(const std::string& name, const Json& json, const Json& of_case) {
  TestTensor tensor;
  tensor.name = name;
  tensor.dtype = *dtype_from_name(of_case.value("dtype", "float32"));
  tensor.is_raw = of_case.value("raw", false);
  if (json.is_object()) {  // {"repeat": value, "count": n}: a long list of one value
    tensor.values.assign(json.at("count").get<std::size_t>(), number(json.at("repeat")));
    return tensor;
  }
  const bool is_text =
      json.is_string() && json != "NaN" && json != "Infinity" && json != "-Infinity";
  if (is_text) {
    tensor.text = json.get<std::string>();
    return tensor;
  }
  append_numbers(expanded(json), 0, tensor);
  if (tensor.values.size() == 1) tensor.shape.clear();
  return tensor;
}

// Of the step that is the i-th of a row: each begins where the one before ended. `duration_ns` may
// be a list, whose elements follow each other again and again.
StepInfo info_from(const Json& row, std::int64_t i) {
  const auto step = row.at("step").get<std::int64_t>();
  StepInfo info = mode_step(step + i, *mode_from_name(row.value("mode", "GLOBAL")),
                            row.value("mode_step", step) + i);
  const Json durations = expanded(row.value("duration_ns", Json(0)));
  info.duration_ns =
      durations.is_array()
          ? durations[static_cast<std::size_t>(i) % durations.size()].get<std::int64_t>()
          : durations.get<std::int64_t>();
  info.wall_time_ns = row.value("wall_time_ns", std::int64_t{0}) + i * info.duration_ns;
  info.session = row.value("session", 0u);
  return info;
}

// `collections` of a case go for all its tensors, or name them for a tensor, as those of a row do;
// `dtype` and `raw` (keep raw values too) go for all tensors; a step's values are numbers, nested
// lists of them, {"repeat": value, "count": n}, or a text. `series` is {tensor: {step: values}} or
// {tensor: [values of step 0, of step 1, ...]} (null: not saved) in mode GLOBAL; `rows` is a list
// of {step, mode, mode_step, worker, wall_time_ns, duration_ns, session, tensors}; with `count` for
// that many steps, one after the other. `other_run` is a second run in this form, to which the
// parameter other_trials is set.
Case read_case(const std::string& rule, const Json& json) {
  Case out{rule, json, {}, {}};
  const Json parameters = json.value("parameters", Json::object());
  for (const auto& [name, value] : parameters.items()) {
    out.parameters[name] = value.get<std::string>();
  }
  const Json of_case = json.value("collections", Json::array());
  const auto all =
      of_case.is_array() ? of_case.get<std::vector<std::string>>() : std::vector<std::string>();
  const Json of_tensor = of_case.is_object() ? of_case : Json::object();
  std::map<std::pair<std::int64_t, std::string>, TestRow> rows;
  const Json all_series = json.value("series", Json::object());
  for (const auto& [name, series] : all_series.items()) {
    for (const auto& [key, values] : series.items()) {
      if (values.is_null()) continue;
      const std::int64_t step = std::stoll(key);
      TestRow& row = rows[{step, "worker_0"}];
      row.info = global_step(step);
      row.tensors.push_back(tensor_from(name, values, json));
      row.tensors.back().collections = of_tensor.value(name, all);
    }
  }
  for (const Json& given : json.value("rows", Json::array())) {
    const Json own = given.value("collections", Json::object());
    for (std::int64_t i = 0; i < given.value("count", 1); ++i) {
      const std::int64_t step = given.at("step").get<std::int64_t>() + i;
      const std::string worker = given.value("worker", "worker_0");
      TestRow& row = rows[{step, worker}];
      row.worker = worker;
      row.info = info_from(given, i);
      for (const auto& [name, values] : given.at("tensors").items()) {
        row.tensors.push_back(tensor_from(name, values, json));
        row.tensors.back().collections = own.value(name, of_tensor.value(name, all));
      }
    }
  }
  for (auto& [key, row] : rows) out.rows.push_back(std::move(row));
  return out;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& file : std::filesystem::directory_iterator(kCasesFolder)) {
    std::ifstream stream(file.path());
    const Json json = Json::parse(stream);
    for (const Json& one : json.at("cases")) {
      cases.push_back(read_case(json.at("rule").get<std::string>(), one));
    }
  }
  return cases;
}

// The run in a case's `other_run`, if it has one.
class OtherRun {
 public:
  explicit OtherRun(Case& one) {
    if (!one.json.contains("other_run")) return;
    case_ = std::make_unique<Case>(read_case(one.rule, one.json.at("other_run")));
    run_ = std::make_unique<GrowingRun>(case_->rows);
    run_->write_rest();
    one.parameters["other_trials"] = run_->path();
  }

 private:
  std::unique_ptr<Case> case_;
  std::unique_ptr<GrowingRun> run_;
};

void expect_finding(const Json& expected, const Json& found) {
  for (const auto& [key, value] : expected.items()) {
    if (key == "message") {
      EXPECT_THAT(found.at(key).get<std::string>(), HasSubstr(value.get<std::string>()));
    } else if (value.is_number_float()) {
      EXPECT_NEAR(number(found.at(key)), value.get<double>(), 1e-6 * std::abs(value.get<double>()));
    } else {
      EXPECT_EQ(found.at(key), value) << key;
    }
  }
}

void expect_outcome(const Json& json, const RuleOutcome& outcome) {
  const Json& expected = json.at("expected");
  ASSERT_EQ(outcome.findings.size(), expected.size()) << testing::PrintToString(outcome.findings);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_finding(expected[i], Json::parse(outcome.findings[i]));
  }
  const Json report = Json::parse(to_json(outcome.reports.front()));
  for (const char* key : {"status", "message"}) {
    if (json.contains(key)) {
      EXPECT_EQ(report.at(key), json.at(key)) << key;
    }
  }
  const Json coverage = json.value("coverage", Json::object());
  for (const auto& [key, count] : coverage.items()) {
    EXPECT_EQ(report.at("coverage").at(key), count) << key;
  }
  EXPECT_EQ(report.at("finding_count"), expected.size());
}

TEST(RuleCases, FindTheSameInProcessFollowingAndAfterwards) {
  for (Case& one : all_cases()) {
    SCOPED_TRACE(one.rule + ": " + one.json.at("name").get<std::string>());
    EXPECT_FALSE(one.json.at("provenance").get<std::string>().empty());
    const OtherRun other(one);
    expect_outcome(one.json, check_three_ways({{one.rule, one.parameters, {}}}, one.rows));
  }
}

TEST(RuleCases, EveryRuleHasCases) {
  std::map<std::string, int> counts;
  for (const Case& one : all_cases()) ++counts[std::string(find_rule(one.rule).name)];
  for (const RuleDescriptor* rule : builtin_rules()) {
    EXPECT_GE(counts[std::string(rule->name)], 5)
        << rule->name << " needs a file in " << kCasesFolder;
  }
}

}  // namespace
}  // namespace tensortap
