// Random runs, and comparing what comes back: shared by the tests of trace/. Included by tests
// only.
#pragma once

#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "storage/storage.h"
#include "trace/random_run_for_test.h"
#include "trace/statistic_fields.h"
#include "trace/step_record.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace tensortap::trace {

// A storage in memory that nobody else has.
inline std::shared_ptr<Storage> fresh_storage() {
  static int count = 0;
  return open_storage("mem:trace-test-" + std::to_string(count++));
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tensortap-trace-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

inline bool same_info(const StepInfo& a, const StepInfo& b) {
  return a.step == b.step && a.mode == b.mode && a.mode_step == b.mode_step &&
         a.wall_time_ns == b.wall_time_ns && a.duration_ns == b.duration_ns &&
         a.session == b.session;
}

inline bool same_row(const StatisticsRow& a, const StatisticsRow& b) {
  bool same = a.tensor == b.tensor && a.layout == b.layout && a.has_histogram == b.has_histogram;
  for (const auto field : kCountFields) same &= a.statistics.*field == b.statistics.*field;
  for (const auto field : kNumberFields)
    same &= same_bits(a.statistics.*field, b.statistics.*field);
  if (a.has_histogram) {
    same &= a.histogram.top == b.histogram.top && a.histogram.counts == b.histogram.counts;
  }
  return same;
}

inline bool same_raw(const RawTensor& a, const RawTensor& b) {
  return a.tensor == b.tensor && a.layout == b.layout && a.data.size_bytes == b.data.size_bytes &&
         std::memcmp(a.data.data.get(), b.data.data.get(), a.data.size_bytes) == 0;
}

// Whether ordinal `ordinal` of `worker` is exactly `expected`, asked in every way there is.
inline ::testing::AssertionResult is_step(const WorkerSource& worker, std::uint32_t ordinal,
                                          const StepRecord& expected) {
  const auto fail = [&](const std::string& what) {
    return ::testing::AssertionFailure() << what << " of step " << expected.info.step << " differs";
  };
  if (ordinal >= worker.steps().size()) return fail("existence");
  if (!same_info(worker.steps()[ordinal], expected.info)) return fail("info");
  const std::shared_ptr<const StepRecord> step = worker.read_step(ordinal);
  if (!same_info(step->info, expected.info)) return fail("info in read_step");
  if (step->rows.size() != expected.rows.size()) return fail("number of rows");
  for (std::size_t i = 0; i < step->rows.size(); ++i) {
    if (!same_row(step->rows[i], expected.rows[i])) return fail("a row in read_step");
    const auto row = worker.read_row(expected.rows[i].tensor, ordinal);
    if (!row || !same_row(*row, expected.rows[i])) return fail("a row in read_row");
  }
  if (step->texts.size() != expected.texts.size()) return fail("number of texts");
  for (std::size_t i = 0; i < step->texts.size(); ++i) {
    if (step->texts[i].text != expected.texts[i].text) return fail("a text in read_step");
    if (worker.read_text(expected.texts[i].tensor, ordinal) != expected.texts[i].text) {
      return fail("a text in read_text");
    }
  }
  for (const RawTensor& raw : expected.raws) {
    const auto read = worker.read_raw(raw.tensor, ordinal);
    if (!read || !same_raw(*read, raw)) return fail("a raw value");
  }
  return ::testing::AssertionSuccess();
}

inline void write_steps(std::shared_ptr<Storage> storage, TraceWriterOptions options,
                        const std::vector<std::shared_ptr<const StepRecord>>& steps) {
  TraceWriter writer(std::move(storage), std::move(options));
  for (const auto& step : steps) EXPECT_TRUE(writer.submit(step));
  writer.close();
  EXPECT_EQ(writer.counters().written_steps, steps.size());
}

}  // namespace tensortap::trace
