// The run around the steps: its files, joining, refusing, resuming, forks, disks that fail.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "capture/recorder.h"
#include "capture/recorder_for_test.h"
#include "storage/faulty_storage.h"
#include "trace/trace_reader.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

class RecorderRunTest : public ::testing::Test {
 protected:
  // Captures warnings: a test must not write to stderr, and some say things on purpose.
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view message) { logged_.emplace_back(message); });
  }
  void TearDown() override { set_log_sink({}); }

  std::unique_ptr<Recorder> start(bool resume = false, const std::string& worker = "worker_0") {
    RecorderOptions options = recorder_options({"weights"}, 1, storage_);
    options.worker = worker;
    options.resume = resume;
    options.framework = "pytorch 2.13.0";
    options.configuration_json = R"({"save_interval": [1, 2]})";
    return std::make_unique<Recorder>(std::move(options), builtin_collections());
  }
  static void record_steps(Recorder& recorder, int count) {
    const FloatTensor values({1, 2});
    for (int i = 0; i < count; ++i) {
      recorder.begin_step();
      recorder.record(recorder.intern("fc.weight"), values.view());
      recorder.end_step();
    }
  }
  Json read_json(std::string_view name) const { return Json::parse(storage_->get(name).value()); }
  // The steps of the run as a reader sees them.
  std::vector<std::int64_t> read_steps() const {
    std::vector<std::int64_t> result;
    const std::shared_ptr<TraceSource> source = open_trace(storage_);
    source->refresh();
    for (const WorkerSource* worker : source->workers()) {
      for (const StepInfo& info : worker->steps()) result.push_back(info.step);
    }
    return result;
  }
  static std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::shared_ptr<Storage> storage_ = fresh_storage();
  std::vector<std::string> logged_;
};

TEST_F(RecorderRunTest, DescribesTheRunAndItsEnd) {
  auto recorder = start();
  const Json run = read_json("run.json");
  EXPECT_EQ(run["format"], "tensortap");
  EXPECT_EQ(run["version"], 1);
  EXPECT_EQ(run["id"], recorder->run_id());
  EXPECT_THAT(run["id"].get<std::string>(), SizeIs(32));
  EXPECT_THAT(run["created"].get<std::string>(),
              ::testing::MatchesRegex("20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{9}Z"));
  EXPECT_EQ(run["framework"], "pytorch 2.13.0");
  EXPECT_EQ(run["pid"], ::getpid());
  EXPECT_EQ(run["configuration"]["save_interval"], Json::array({1, 2}));
  EXPECT_TRUE(run["versions"].contains("tensortap"));

  record_steps(*recorder, 3);
  EXPECT_FALSE(storage_->exists("end/worker_0.json"));
  recorder->close();
  const Json end = read_json("end/worker_0.json");
  EXPECT_EQ(end["reason"], "closed");
  EXPECT_EQ(end["last_step"], 2);
  EXPECT_EQ(end["written_steps"], 3);
  EXPECT_EQ(end["dropped_steps"], 0);
  EXPECT_EQ(end["last_error"], "");
  EXPECT_THAT(read_steps(), ElementsAre(0, 1, 2));
}

TEST_F(RecorderRunTest, WritesCollectionsAfterTheFirstStepAndWhenTheyGrow) {
  auto recorder = start();
  EXPECT_FALSE(storage_->exists("collections/worker_0.json"));
  record_steps(*recorder, 1);
  const auto read = [&] {
    return CollectionSet::from_json(storage_->get("collections/worker_0.json").value(), "here");
  };
  EXPECT_TRUE(read().find("weights")->tensor_names().contains("fc.weight"));
  recorder->collections().get_or_create("mine").include("^relu");
  record_steps(*recorder, 1);
  EXPECT_NE(read().find("mine"), nullptr);
  recorder->intern("conv.weight");
  record_steps(*recorder, 1);
  EXPECT_FALSE(read().find("weights")->tensor_names().contains("conv.weight"));  // not every step
  recorder->close();
  EXPECT_TRUE(read().find("weights")->tensor_names().contains("conv.weight"));
}

TEST_F(RecorderRunTest, JoinsTheRunThatAnotherWorkerMade) {
  auto first = start();
  auto second = start(false, "worker_1");
  EXPECT_EQ(first->run_id(), second->run_id());
  record_steps(*first, 1);
  record_steps(*second, 2);
  first->close();
  second->close();
  EXPECT_EQ(read_json("end/worker_1.json")["last_step"], 1);
}

TEST_F(RecorderRunTest, RefusesToMixTwoRuns) {
  auto recorder = start();
  record_steps(*recorder, 1);
  recorder->close();
  const std::vector<StorageEntry> before = storage_->list("");
  const std::string message = error_of([&] { start(); });
  EXPECT_THAT(message, HasSubstr("resume=True"));
  EXPECT_THAT(message, HasSubstr("another out_dir"));
  EXPECT_THAT(message, HasSubstr("delete it"));
  EXPECT_TRUE(message.ends_with(storage_->uri())) << message;
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_EQ(storage_->list("").size(), before.size());
  EXPECT_TRUE(storage_->exists("end/worker_0.json"));
}

TEST_F(RecorderRunTest, GoesOnAfterTheLastStepOfEachMode) {
  auto recorder = start();
  recorder->set_mode(Mode::kTrain);
  record_steps(*recorder, 3);
  recorder->set_mode(Mode::kEval);
  record_steps(*recorder, 2);
  const std::string id = recorder->run_id();
  recorder->close();

  auto resumed = start(true);
  EXPECT_EQ(resumed->run_id(), id);
  EXPECT_FALSE(storage_->exists("end/worker_0.json"));
  EXPECT_EQ(resumed->step(), 4);
  EXPECT_EQ(resumed->mode_step(Mode::kTrain), 2);
  EXPECT_EQ(resumed->mode_step(Mode::kEval), 1);
  EXPECT_EQ(resumed->mode_step(Mode::kPredict), -1);
  EXPECT_EQ(resumed->find("fc.weight"), TensorId{0});

  KeepingSink sink;
  resumed->add_sink(&sink);
  resumed->set_mode(Mode::kTrain);
  resumed->intern("conv.weight");
  record_steps(*resumed, 1);
  ASSERT_THAT(sink.steps, SizeIs(1));
  EXPECT_EQ(sink.steps[0]->info.step, 5);
  EXPECT_EQ(sink.steps[0]->info.mode_step, 3);
  EXPECT_EQ(sink.steps[0]->info.session, 1u);
  ASSERT_THAT(sink.steps[0]->new_tensors, SizeIs(1));  // what the first session defined stays
  EXPECT_EQ(sink.steps[0]->new_tensors[0].name, "conv.weight");
  resumed->close();
  EXPECT_EQ(read_json("end/worker_0.json")["session"], 1);
  EXPECT_THAT(read_steps(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(RecorderRunTest, SimplyStartsWhenThereIsNothingToResume) {
  auto recorder = start(true);
  EXPECT_EQ(recorder->step(), -1);
  record_steps(*recorder, 1);
  recorder->close();
  EXPECT_EQ(read_json("end/worker_0.json")["session"], 0);
  EXPECT_THAT(read_steps(), ElementsAre(0));
}

TEST_F(RecorderRunTest, LeavesOtherFilesAloneButNotAForeignRun) {
  storage_->put("model.pt", "weights");
  start()->close();
  EXPECT_EQ(storage_->get("model.pt"), "weights");

  storage_ = fresh_storage();
  storage_->put("run.json", R"({"name": "somebody else's"})");
  EXPECT_THAT(error_of([&] { start(); }), HasSubstr("not Tensortap's"));
  storage_->put("run.json", "not even JSON");
  EXPECT_THAT(error_of([&] { start(); }), HasSubstr("not Tensortap's"));
  storage_->put("run.json", R"({"format": "tensortap", "version": 2, "id": "x"})");
  EXPECT_THAT(error_of([&] { start(); }), HasSubstr("newer"));
  storage_->put("run.json", R"({"format": "tensortap", "version": 1, "id": "x"})");
  EXPECT_THAT(error_of([&] { start(); }), HasSubstr("no valid run id"));
}

class RecorderDirectoryTest : public RecorderRunTest {
 protected:
  void SetUp() override {
    RecorderRunTest::SetUp();
    char path[] = "/tmp/recorder_test_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override {
    RecorderRunTest::TearDown();
    fs::remove_all(directory_);
  }
  RecorderOptions options_at(const std::string& path) const {
    RecorderOptions options = recorder_options({"weights"}, 1);
    options.storage = nullptr;
    options.out_dir = path;
    return options;
  }
  std::string directory_;
};

TEST_F(RecorderDirectoryTest, MakesTheDirectoryAndSaysWhenAFileIsThere) {
  const std::string deep = directory_ + "/a/b/run";
  Recorder recorder(options_at(deep), builtin_collections());
  record_steps(recorder, 1);
  recorder.close();
  EXPECT_TRUE(fs::exists(deep + "/run.json"));

  const std::string file = directory_ + "/model.pt";
  std::ofstream(file) << "weights";
  const std::string message = error_of([&] { Recorder(options_at(file), builtin_collections()); });
  EXPECT_THAT(message, HasSubstr("this is a file"));
  EXPECT_TRUE(message.ends_with(file)) << message;
  EXPECT_THROW(Recorder(options_at(""), builtin_collections()), Error);
}

// Everything of a directory as one text.
std::string snapshot(const std::string& directory) {
  std::string result;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    result += entry.path().string() + "\n";
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    result += std::string(std::istreambuf_iterator<char>(file), {});
  }
  return result;
}

TEST_F(RecorderDirectoryTest, IsInertInAForkedChild) {
  KeepingSink sink;
  auto recorder =
      std::make_unique<Recorder>(options_at(directory_ + "/run"), builtin_collections());
  recorder->add_sink(&sink);
  record_steps(*recorder, 2);
  recorder->begin_step();
  ASSERT_TRUE(recorder->flush(5'000'000'000));
  const std::string before = snapshot(directory_);

  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TensorId id = recorder->intern("fc.weight");
    const bool planned = recorder->begin_step().any_due();
    recorder->record(id, FloatTensor({1, 2}).view());
    recorder->record_batch(std::vector<RecordItem>{{id, FloatTensor({1, 2}).view()}});
    recorder->record_scalar("scalar/a", 1.0);
    recorder->record_text("text/a", "a");
    recorder->record_raw(id, FloatTensor({1, 2}).view());
    recorder->set_mode(Mode::kEval);
    recorder->end_step();
    recorder->export_collections();
    const bool flushed = recorder->flush(1'000'000);
    recorder->close();
    recorder.reset();
    ::_exit(!planned && flushed && sink.steps.size() == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(snapshot(directory_), before);

  recorder->record(recorder->intern("fc.weight"), FloatTensor({1, 2}).view());
  recorder->close();
  EXPECT_EQ(recorder->counters().written_steps, 3u);
}

// ---- disks that fail ----

TEST_F(RecorderRunTest, GoesOnRecordingWhenTheDiskIsFull) {
  const auto faults = std::make_shared<StorageFaults>();
  const std::shared_ptr<Storage> good = storage_;
  storage_ = make_faulty_storage(good, faults);
  auto recorder = start();
  KeepingSink sink;
  recorder->add_sink(&sink);
  record_steps(*recorder, 2);
  ASSERT_TRUE(recorder->flush(5'000'000'000));
  faults->room_bytes = 0;
  faults->refuse_create = true;
  record_steps(*recorder, 5);
  recorder->flush(5'000'000'000);
  EXPECT_THAT(sink.steps, SizeIs(7));  // rules still see every step
  recorder->close();
  const TraceWriterCounters counters = recorder->counters();
  EXPECT_EQ(counters.written_steps, 2u);
  EXPECT_EQ(counters.dropped_steps, 5u);
  EXPECT_NE(counters.last_error, "");
  EXPECT_GE(logged_.size(), 1u);
  storage_ = good;
  EXPECT_THAT(read_steps(), ElementsAre(0, 1));
}

TEST_F(RecorderRunTest, SurvivesThatItsSmallFilesCannotBeWritten) {
  const auto faults = std::make_shared<StorageFaults>();
  storage_ = make_faulty_storage(storage_, faults);
  faults->refuse_put = true;
  EXPECT_THAT(error_of([&] { start(); }), HasSubstr("run.json"));
  faults->refuse_put = false;
  auto recorder = start();
  faults->refuse_put = true;
  record_steps(*recorder, 3);
  EXPECT_EQ(recorder->fault_count(), 1u);  // the collections, once and not every step
  EXPECT_THAT(error_of([&] { recorder->export_collections(); }), HasSubstr("collections"));
  recorder->close();
  EXPECT_EQ(recorder->fault_count(), 3u);
  EXPECT_THAT(recorder->counters().last_error, HasSubstr("end"));
  EXPECT_THAT(logged_, SizeIs(1));
  EXPECT_THAT(read_steps(), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tensortap
