// What is written comes back: every field, through every question, sealed or not, over segments,
// sessions and workers.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "trace/trace_for_test.h"

namespace tensortap::trace {
namespace {

using ::testing::IsEmpty;
using Steps = std::vector<std::shared_ptr<const StepRecord>>;

const WorkerSource& only_worker(const TraceSource& source) {
  EXPECT_EQ(source.workers().size(), 1u);
  return *source.workers().front();
}

void expect_steps(const WorkerSource& worker, const Steps& steps) {
  ASSERT_EQ(worker.steps().size(), steps.size());
  for (std::uint32_t i = 0; i < steps.size(); ++i) EXPECT_TRUE(is_step(worker, i, *steps[i]));
}

// Every column and every list of ordinals, computed from the original records.
void expect_columns(const WorkerSource& worker, const Steps& steps, const Dictionary& dictionary) {
  for (TensorId tensor = 0; tensor < dictionary.tensors.size(); ++tensor) {
    std::vector<std::uint32_t> any;
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const auto is_it = [&](const auto& item) { return item.tensor == tensor; };
      const StepRecord& step = *steps[i];
      if (std::any_of(step.rows.begin(), step.rows.end(), is_it) ||
          std::any_of(step.raws.begin(), step.raws.end(), is_it) ||
          std::any_of(step.texts.begin(), step.texts.end(), is_it)) {
        any.push_back(i);
      }
    }
    EXPECT_EQ(worker.tensor_ordinals(tensor), any);
    for (const StatisticDescriptor& statistic : statistic_table()) {
      SourceColumn column;
      worker.read_column(tensor, statistic.id, 1, static_cast<std::uint32_t>(steps.size()), column);
      std::size_t at = 0;
      for (std::uint32_t i = 1; i < steps.size(); ++i) {
        for (const StatisticsRow& row : steps[i]->rows) {
          if (row.tensor != tensor) continue;
          ASSERT_LT(at, column.values.size());
          const double expected = statistic_value(row.statistics, statistic.id);
          EXPECT_EQ(column.ordinals[at], i);
          EXPECT_TRUE(same_bits(column.values[at], expected) ||
                      (std::isnan(column.values[at]) && std::isnan(expected)))
              << statistic.name << " " << column.values[at] << " " << expected;
          ++at;
        }
      }
      EXPECT_EQ(at, column.values.size()) << statistic.name;
    }
  }
}

class RoundTripTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(RoundTripTest, EveryFieldComesBack) {
  RandomRun run(GetParam());
  const Steps steps = run.make({});
  const auto storage = fresh_storage();
  TraceWriterOptions options;
  options.compress_raw = GetParam() % 2 == 1;
  write_steps(storage, options, steps);
  const auto source = open_trace(storage);
  const WorkerSource& worker = only_worker(*source);
  EXPECT_EQ(worker.name(), "worker_0");
  expect_steps(worker, steps);
  expect_columns(worker, steps, run.dictionary);
  for (std::size_t i = 0; i < run.dictionary.tensors.size(); ++i) {
    EXPECT_EQ(worker.dictionary().tensors.at(i).name, run.dictionary.tensors[i].name);
    EXPECT_EQ(worker.dictionary().tensors[i].collections, run.dictionary.tensors[i].collections);
  }
  EXPECT_THAT(source->problems(), IsEmpty());
  const VerifyReport report = verify_trace(*storage);
  EXPECT_TRUE(report.is_clean());
  EXPECT_EQ(report.step_count, steps.size());
  EXPECT_TRUE(report.segments.at(0).is_sealed);
}

TEST_P(RoundTripTest, ManySegmentsAndSessionsAreOneSequence) {
  RandomRun run(GetParam() + 1000);
  const auto storage = fresh_storage();
  Steps all;
  for (std::uint32_t session = 0; session < 3; ++session) {
    TraceWriterOptions options;
    options.segment_size_bytes = 2000;
    options.dictionary = run.dictionary;
    const ResumePoint point = find_resume_point(*storage, "worker_0");
    EXPECT_EQ(point.next_session, session);
    EXPECT_EQ(point.dictionary.tensors.size(), run.dictionary.tensors.size());
    EXPECT_EQ(point.dictionary.layouts, run.dictionary.layouts);
    EXPECT_EQ(point.last_global_step, static_cast<std::int64_t>(all.size()) - 1);
    options.session = session;
    const Steps steps = run.make({.session = session});
    write_steps(storage, options, steps);
    all.insert(all.end(), steps.begin(), steps.end());
  }
  EXPECT_GT(storage->list("trace/").size(), 6u);
  const auto source = open_trace(storage);
  expect_steps(only_worker(*source), all);
  expect_columns(only_worker(*source), all, run.dictionary);
  EXPECT_THAT(source->problems(), IsEmpty());
  EXPECT_TRUE(verify_trace(*storage).is_clean());
}

TEST_P(RoundTripTest, AnUnsealedSegmentGivesTheSameAnswers) {
  RandomRun run(GetParam() + 2000);
  const Steps steps = run.make({});
  const auto storage = fresh_storage();
  TraceWriter writer(storage, {});
  for (const auto& step : steps) ASSERT_TRUE(writer.submit(step));
  ASSERT_TRUE(writer.flush(10'000'000'000));
  const auto source = open_trace(storage);
  const auto expect_all = [&] {
    expect_steps(only_worker(*source), steps);
    expect_columns(only_worker(*source), steps, run.dictionary);
  };
  EXPECT_FALSE(verify_trace(*storage).segments.at(0).is_sealed);
  expect_all();
  writer.close();
  // Nothing new, but from here on the index answers.
  EXPECT_FALSE(source->refresh());
  EXPECT_TRUE(verify_trace(*storage).segments.at(0).is_sealed);
  expect_all();
  EXPECT_THAT(source->problems(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RoundTripTest, ::testing::Range(0u, 12u));

TEST(TraceReaderTest, WorkersAreSortedAndEndMarksAreSeen) {
  const auto storage = fresh_storage();
  for (const char* name : {"worker_1", "worker_0"}) {
    RandomRun run(7);
    TraceWriterOptions options;
    options.worker = name;
    write_steps(storage, options, run.make({.step_count = 3}));
  }
  storage->put(collections_name("worker_1"), "{\"b\":1}");
  storage->put(collections_name("worker_0"), "{\"a\":1}");
  storage->put(kRunFile, "{}");
  const auto source = open_trace(storage);
  ASSERT_EQ(source->workers().size(), 2u);
  EXPECT_EQ(source->workers()[0]->name(), "worker_0");
  EXPECT_EQ(source->workers()[1]->steps().size(), 3u);
  EXPECT_THAT(source->collections_json(), ::testing::ElementsAre("{\"a\":1}", "{\"b\":1}"));
  EXPECT_EQ(source->run_json(), "{}");
  EXPECT_FALSE(source->workers()[1]->has_ended());
  storage->put(end_mark_name("worker_1"), "{}");
  EXPECT_TRUE(source->refresh());
  EXPECT_TRUE(source->workers()[1]->has_ended());
  EXPECT_FALSE(source->workers()[0]->has_ended());
  EXPECT_FALSE(source->refresh());
}

TEST(TraceReaderTest, NoRunIsNotFound) {
  try {
    const auto storage = fresh_storage();
    storage->put("trace/notes.txt", "not a segment");
    open_trace(storage);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST(TraceReaderTest, AStepReadAgainAfterReleaseIsTheSame) {
  RandomRun run(3);
  const Steps steps = run.make({});
  const auto storage = fresh_storage();
  write_steps(storage, {}, steps);
  const auto source = open_trace(storage);
  const WorkerSource& worker = only_worker(*source);
  const StepRecord& expected = *steps.back();
  ASSERT_FALSE(expected.rows.empty());
  const auto held = worker.read_step(static_cast<std::uint32_t>(steps.size()) - 1);
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    (void)worker.read_step(i);  // released at once, so its memory is used again
    ASSERT_EQ(held->rows.size(), expected.rows.size());
    EXPECT_TRUE(same_row(held->rows.back(), expected.rows.back()));
  }
}

TEST(TraceReaderTest, RawDataIsAlignedInTheFile) {
  RandomRun run(5);
  const auto storage = fresh_storage();
  const Steps steps = run.make({.step_count = 100});
  write_steps(storage, {}, steps);
  const std::string bytes = *storage->get(segment_name("worker_0", 0));
  int found = 0;
  for (const auto& step : steps) {
    for (const RawTensor& raw : step->raws) {
      if (raw.data.size_bytes < 16) continue;
      std::string wanted(raw.data.size_bytes, '\0');
      std::memcpy(wanted.data(), raw.data.data.get(), wanted.size());
      bool aligned = false;
      for (std::size_t at = bytes.find(wanted); at != std::string::npos;
           at = bytes.find(wanted, at + 1)) {
        aligned |= at % 64 == 0;
      }
      EXPECT_TRUE(aligned);
      ++found;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(TraceReaderTest, ASingleElementNeedsNoRawValue) {
  StatisticsRow row;
  row.statistics.count = 1;
  row.statistics.mean = 2.5;
  EXPECT_EQ(single_value(row), 2.5);
  row.statistics.count = 2;
  EXPECT_EQ(single_value(row), std::nullopt);
}

TEST(ModeTest, NamesAndCodesGoBothWays) {
  EXPECT_EQ(mode_name(Mode::kTrain), "TRAIN");
  EXPECT_EQ(mode_from_name("predict"), Mode::kPredict);
  EXPECT_EQ(mode_from_name("TRAINING"), std::nullopt);
  EXPECT_EQ(mode_from_code(4), Mode::kGlobal);
  EXPECT_EQ(mode_from_code(0), std::nullopt);
  EXPECT_EQ(mode_from_code(5), std::nullopt);
}

}  // namespace
}  // namespace tensortap::trace
