// The runs in tests/golden/v1 were written by the first version of the format and must be readable
// for ever. The files are never written again; TENSORTAP_WRITE_GOLDEN=<folder> makes such files for
// the next version.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "trace/trace_for_test.h"

namespace tensortap::trace {
namespace {

using ::testing::IsEmpty;
using Steps = std::vector<std::shared_ptr<const StepRecord>>;

const std::string kGolden = "tests/golden/v1";

RawTensor raw_bytes(TensorId tensor, LayoutId layout, std::size_t size) {
  static BufferPool pool(1 << 20);
  RawTensor raw{tensor, layout, pool.acquire(size)};
  for (std::size_t i = 0; i < size; ++i)
    raw.data.data.get()[i] = static_cast<std::byte>(i * 37 + tensor);
  return raw;
}

StatisticsRow golden_row(TensorId tensor, int step) {
  StatisticsRow row;
  row.tensor = tensor;
  row.layout = tensor == 2 ? 1 : 0;
  Statistics& statistics = row.statistics;
  statistics.count = tensor == 2 ? 1 : 6;
  statistics.nan_count = step == 3 ? 2 : 0;
  statistics.zero_count = std::uint64_t{1} << (8 * step);  // widths 1, 2, 4 and 8
  statistics.min = -1.5 * (step + 1);
  statistics.max = 0.1 * (tensor + 1);
  statistics.mean = -0.0;
  statistics.variance = step == 3 ? std::numeric_limits<double>::quiet_NaN() : 1e-300;
  statistics.abs_min = std::numeric_limits<double>::denorm_min();
  statistics.abs_mean = 1.0 / 3;
  statistics.abs_variance = 0.25;
  row.has_histogram = tensor == 1;
  row.histogram.top = static_cast<std::int16_t>(step - 2);
  row.histogram.counts[0] = 1;
  row.histogram.counts[31] = 300;
  row.histogram.counts[63] = 70'000;
  return row;
}

Steps golden_steps(Dictionary& dictionary) {
  Steps steps;
  for (int i = 0; i < 5; ++i) {
    auto step = std::make_shared<StepRecord>();
    step->info = {
        10 * i, i == 4 ? Mode::kEval : Mode::kTrain, i, 1'700'000'000'000'000'000 + i, 1000 + i, 0};
    if (i == 0) {
      step->new_tensors = {{"gradient/Net_fc.weight", {"gradients", "all"}},
                           {"Net_fc.weight", {"weights"}}};
      step->new_layouts = {{DType::kFloat32, {2, 3}}};
    }
    if (i == 1) {
      step->new_tensors = {{"loss_\xC3\xA4", {}}};
      step->new_layouts = {{DType::kBFloat16, {}}};
    }
    dictionary.tensors.insert(dictionary.tensors.end(), step->new_tensors.begin(),
                              step->new_tensors.end());
    dictionary.layouts.insert(dictionary.layouts.end(), step->new_layouts.begin(),
                              step->new_layouts.end());
    step->rows = {golden_row(1, i), golden_row(0, i)};
    if (i == 2) step->rows.erase(step->rows.begin());
    if (i >= 1) step->rows.push_back(golden_row(2, i));
    if (i % 2 == 0) step->raws = {raw_bytes(1, 0, 24)};
    if (i == 3) step->texts = {{2, "what a step \xE2\x9C\x93"}};
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte value : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[std::to_integer<unsigned>(value) >> 4];
    out += kDigits[std::to_integer<unsigned>(value) & 15];
  }
  return out;
}

void write_row(const StatisticsRow& row, JsonWriter& json) {
  json.begin_object().field("tensor", std::uint64_t{row.tensor});
  json.field("layout", std::uint64_t{row.layout}).key("statistics").begin_object();
  for (const StatisticDescriptor& statistic : statistic_table()) {
    const auto code = static_cast<std::size_t>(statistic.id);
    if (!statistic.is_stored) continue;
    if (statistic.is_count) {
      json.field(statistic.name, row.statistics.*kCountFields[code]);
    } else {
      json.field(statistic.name, row.statistics.*kNumberFields[code - kCountFieldCount]);
    }
  }
  json.end_object().key("histogram");
  if (row.has_histogram) {
    json.begin_object().field("top", int{row.histogram.top}).key("counts").begin_array();
    for (const std::uint64_t count : row.histogram.counts) json.value(count);
    json.end_array().end_object();
  } else {
    json.null();
  }
  json.end_object();
}

void write_step(const StepRecord& step, JsonWriter& json) {
  json.begin_object()
      .field("step", step.info.step)
      .field("mode", std::string(mode_name(step.info.mode)));
  json.field("mode_step", step.info.mode_step).field("wall_time_ns", step.info.wall_time_ns);
  json.field("duration_ns", step.info.duration_ns)
      .field("session", std::uint64_t{step.info.session});
  json.key("rows").begin_array();
  for (const StatisticsRow& row : step.rows) write_row(row, json);
  json.end_array().key("raws").begin_array();
  for (const RawTensor& raw : step.raws) {
    json.begin_object().field("tensor", std::uint64_t{raw.tensor});
    json.field("layout", std::uint64_t{raw.layout})
        .field("hex", hex(raw.data.bytes()))
        .end_object();
  }
  json.end_array().key("texts").begin_array();
  for (const TextValue& text : step.texts) {
    json.begin_object()
        .field("tensor", std::uint64_t{text.tensor})
        .field("text", text.text)
        .end_object();
  }
  json.end_array().end_object();
}

std::string golden_json(const Steps& steps, const Dictionary& dictionary) {
  JsonWriter json(1);
  json.begin_object().key("tensors").begin_array();
  for (const TensorInfo& tensor : dictionary.tensors) {
    json.begin_object().field("name", tensor.name).key("collections").begin_array();
    for (const std::string& collection : tensor.collections) json.value(collection);
    json.end_array().end_object();
  }
  json.end_array().key("layouts").begin_array();
  for (const Layout& layout : dictionary.layouts) {
    json.begin_object()
        .field("dtype", std::string(dtype_name(layout.dtype)))
        .key("shape")
        .begin_array();
    for (const std::int64_t length : layout.shape) json.value(length);
    json.end_array().end_object();
  }
  json.end_array().key("steps").begin_array();
  for (const auto& step : steps) write_step(*step, json);
  json.end_array().end_object();
  return json.text() + "\n";
}

TEST(GoldenTest, TheExpectedAnswersAreThoseOfTheRecords) {
  const TemporaryFolder temporary;
  const char* wanted = std::getenv("TENSORTAP_WRITE_GOLDEN");
  const std::string root = wanted != nullptr ? wanted : temporary.path();
  Dictionary dictionary;
  const Steps steps = golden_steps(dictionary);
  TraceWriterOptions options;
  options.run_id = "00112233445566778899aabbccddeeff";
  options.session_json = R"({"host": "golden"})";
  write_steps(open_storage(root + "/sealed"), options, steps);
  TraceWriter writer(open_storage(root + "/open"), options);
  for (const auto& step : steps) writer.submit(step);
  ASSERT_TRUE(writer.flush(10'000'000'000));
  const std::string name = segment_name("worker_0", 0);
  open_storage(root + "/unsealed")->put(name, *open_storage(root + "/open")->get(name));
  open_storage(root)->put("expected.json", golden_json(steps, dictionary));
  EXPECT_EQ(open_storage(root)->get("expected.json"), open_storage(kGolden)->get("expected.json"));
}

TEST(GoldenTest, VersionOneIsReadAsItWasWritten) {
  Dictionary dictionary;
  const Steps steps = golden_steps(dictionary);
  for (const bool sealed : {true, false}) {
    const auto storage = open_storage(kGolden + (sealed ? "/sealed" : "/unsealed"));
    const auto source = open_trace(storage);
    const WorkerSource& worker = *source->workers().at(0);
    ASSERT_EQ(worker.steps().size(), steps.size());
    for (std::uint32_t i = 0; i < steps.size(); ++i) EXPECT_TRUE(is_step(worker, i, *steps[i]));
    ASSERT_EQ(worker.dictionary().tensors.size(), 3u);
    EXPECT_EQ(worker.dictionary().tensors[0].collections, dictionary.tensors[0].collections);
    EXPECT_EQ(worker.dictionary().layouts, dictionary.layouts);
    SourceColumn column;
    worker.read_column(1, StatisticId::kMin, 0, 5, column);
    EXPECT_THAT(column.ordinals, ::testing::ElementsAre(0, 1, 3, 4));
    EXPECT_THAT(column.values, ::testing::ElementsAre(-1.5, -3.0, -6.0, -7.5));
    const VerifyReport report = verify_trace(*storage);
    EXPECT_TRUE(report.is_clean());
    EXPECT_EQ(report.segments.at(0).is_sealed, sealed);
  }
}

}  // namespace
}  // namespace tensortap::trace
