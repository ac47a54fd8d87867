// Runs the cases in tests/rules/*.json three ways: on the steps of this process, following a run
// that grows, and over the closed run. All three must find the same, and what the case says. docs:
// the keys are explained in read_case.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rules/engine.h"
#include "rules/registry.h"
#include "storage/storage.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"
#include "trial/run_for_test.h"
#include "trial/trial.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kCasesFolder = "tests/rules";

// One worker's part of a step.
struct Row {
  std::string worker = "worker_0";
  StepInfo info;
  std::vector<TestTensor> tensors;
};

struct Case {
  std::string rule;
  Json json;
  std::map<std::string, std::string> parameters;
  std::vector<Row> rows;  // by step, then worker
};

struct Outcome {
  std::vector<std::string> findings;  // as JSON, since a NaN does not equal itself
  RuleReport report;
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
  append_numbers(json, 0, tensor);
  if (tensor.values.size() == 1) tensor.shape.clear();
  return tensor;
}

// `collections` of a case go for all its tensors, or name them for a tensor, as those of a row do;
// `dtype` and `raw` (keep raw values too) go for all tensors; a step's values are numbers, nested
// lists of them, {"repeat": value, "count": n}, or a text. `series` is {tensor: {step: values}} or
// {tensor: [values of step 0, of step 1, ...]} (null: not saved) in mode GLOBAL; `rows` is a list
// of {step, mode, mode_step, worker, tensors}. `other_run` is a second run in this form, to which
// the parameter other_trials is set.
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
  std::map<std::pair<std::int64_t, std::string>, Row> rows;
  const Json all_series = json.value("series", Json::object());
  for (const auto& [name, series] : all_series.items()) {
    for (const auto& [key, values] : series.items()) {
      if (values.is_null()) continue;
      const std::int64_t step = std::stoll(key);
      Row& row = rows[{step, "worker_0"}];
      row.info = global_step(step);
      row.tensors.push_back(tensor_from(name, values, json));
      row.tensors.back().collections = of_tensor.value(name, all);
    }
  }
  for (const Json& given : json.value("rows", Json::array())) {
    const auto step = given.at("step").get<std::int64_t>();
    const std::string worker = given.value("worker", "worker_0");
    Row& row = rows[{step, worker}];
    row.worker = worker;
    row.info = mode_step(step, *mode_from_name(given.value("mode", "GLOBAL")),
                         given.value("mode_step", step));
    row.info.wall_time_ns = given.value("wall_time_ns", std::int64_t{0});
    row.info.duration_ns = given.value("duration_ns", std::int64_t{0});
    const Json own = given.value("collections", Json::object());
    for (const auto& [name, values] : given.at("tensors").items()) {
      row.tensors.push_back(tensor_from(name, values, json));
      row.tensors.back().collections = own.value(name, of_tensor.value(name, all));
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

// An engine with the case's rule, which writes down what is found.
class Checker {
 public:
  explicit Checker(const Case& one) {
    engine_.add({one.rule, one.parameters, {}});
    engine_.set_finding_handler([this](std::size_t, const Finding& finding) {
      outcome_.findings.push_back(to_json(finding));
    });
  }
  RuleEngine& engine() { return engine_; }
  Outcome finish() {
    engine_.finish();
    outcome_.report = engine_.reports().front();
    return outcome_;
  }

 private:
  RuleEngine engine_;
  Outcome outcome_;
};

Outcome check_in_process(const Case& one) {
  Checker checker(one);
  std::map<std::string, RecordMaker> makers;
  for (const Row& row : one.rows) makers[row.worker];
  for (std::size_t i = 0; i < one.rows.size();) {
    const StepInfo& info = one.rows[i].info;
    std::vector<std::shared_ptr<const StepRecord>> records;
    std::vector<WorkerStep> workers;
    for (; i < one.rows.size() && one.rows[i].info.step == info.step; ++i) {
      const auto maker = makers.find(one.rows[i].worker);
      records.push_back(maker->second.make(one.rows[i].info, one.rows[i].tensors));
      workers.push_back({maker->first,
                         static_cast<std::uint32_t>(std::distance(makers.begin(), maker)),
                         records.back().get(), &maker->second.dictionary()});
    }
    checker.engine().check({info.step, info.mode, info.mode_step, workers});
  }
  return checker.finish();
}

// The case as a run on disk that grows step by step.
class GrowingRun {
 public:
  explicit GrowingRun(const Case& one) : case_(one) {
    static int number = 0;
    path_ = testing::TempDir() + "rule_case_" + std::to_string(::getpid()) + "_" +
            std::to_string(number++);
    std::filesystem::remove_all(path_);
    storage_ = open_storage(path_);
    storage_->put(kRunFile,
                  R"({"format":"tensortap","version":1,"id":"00000000000000000000000000000001"})");
    for (const Row& row : one.rows) {
      Worker& worker = workers_[row.worker];
      if (worker.writer) continue;
      TraceWriterOptions options;
      options.worker = row.worker;
      options.run_id = "00000000000000000000000000000001";
      worker.writer = std::make_unique<TraceWriter>(storage_, options);
    }
  }
  ~GrowingRun() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  // Everybody's first step, so that a trial opened now knows all workers.
  void write_first_step() {
    while (next_ < case_.rows.size() && case_.rows[next_].info.step == case_.rows[0].info.step) {
      write_next();
    }
  }
  void write_rest() {
    while (next_ < case_.rows.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      write_next();
    }
    for (auto& [name, worker] : workers_) {
      worker.writer->close();
      storage_->put(end_mark_name(name), "{}");
    }
  }

 private:
  struct Worker {
    RecordMaker maker;
    std::unique_ptr<TraceWriter> writer;
  };
  void write_next() {
    const Row& row = case_.rows[next_++];
    Worker& worker = workers_[row.worker];
    EXPECT_TRUE(worker.writer->submit(worker.maker.make(row.info, row.tensors)));
    EXPECT_TRUE(worker.writer->flush(10'000'000'000));
  }

  const Case& case_;
  std::string path_;
  std::shared_ptr<Storage> storage_;
  std::map<std::string, Worker> workers_;
  std::size_t next_ = 0;
};

// The run in a case's `other_run`, if it has one.
class OtherRun {
 public:
  explicit OtherRun(Case& one) {
    if (!one.json.contains("other_run")) return;
    case_ = std::make_unique<Case>(read_case(one.rule, one.json.at("other_run")));
    run_ = std::make_unique<GrowingRun>(*case_);
    run_->write_rest();
    one.parameters["other_trials"] = run_->path();
  }

 private:
  std::unique_ptr<Case> case_;
  std::unique_ptr<GrowingRun> run_;
};

Outcome check_trial(const Case& one, const std::string& path, bool follow) {
  Checker checker(one);
  checker.engine().check_trial(*Trial::open(path), {}, {}, follow);
  return checker.finish();
}

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

void expect_outcome(const Json& json, const Outcome& outcome) {
  const Json& expected = json.at("expected");
  ASSERT_EQ(outcome.findings.size(), expected.size()) << testing::PrintToString(outcome.findings);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_finding(expected[i], Json::parse(outcome.findings[i]));
  }
  const Json report = Json::parse(to_json(outcome.report));
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

void expect_same(const Outcome& is, const Outcome& in_process) {
  EXPECT_EQ(is.findings, in_process.findings);
  EXPECT_EQ(to_json(is.report), to_json(in_process.report));
}

TEST(RuleCases, FindTheSameInProcessFollowingAndAfterwards) {
  for (Case& one : all_cases()) {
    SCOPED_TRACE(one.rule + ": " + one.json.at("name").get<std::string>());
    EXPECT_FALSE(one.json.at("provenance").get<std::string>().empty());
    const OtherRun other(one);
    const Outcome in_process = check_in_process(one);
    expect_outcome(one.json, in_process);

    GrowingRun run(one);
    run.write_first_step();
    std::thread training([&] { run.write_rest(); });
    const Outcome following = check_trial(one, run.path(), true);
    training.join();
    expect_same(following, in_process);
    expect_same(check_trial(one, run.path(), false), in_process);
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
