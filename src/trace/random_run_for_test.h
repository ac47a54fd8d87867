// Makes random steps, with every field taking values that somebody could lose. Included by tests
// only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "trace/statistic_fields.h"
#include "trace/step_record.h"

namespace tensortap::trace {

struct RandomRunOptions {
  std::size_t step_count = 20;
  std::size_t tensor_count = 7;
  bool with_raws = true;
  bool with_texts = true;
  bool with_histograms = true;
  std::uint32_t session = 0;
};

// Makes the steps of one worker. Every field takes values that somebody could lose: NaN payloads,
// -0, 64-bit counts.
class RandomRun {
 public:
  explicit RandomRun(unsigned seed) : random_(seed) {}

  Dictionary dictionary;

  std::vector<std::shared_ptr<const StepRecord>> make(const RandomRunOptions& options) {
    std::vector<std::shared_ptr<const StepRecord>> steps;
    for (std::size_t i = 0; i < options.step_count; ++i) steps.push_back(make_step(options));
    return steps;
  }

  std::shared_ptr<const StepRecord> make_step(const RandomRunOptions& options) {
    auto step = std::make_shared<StepRecord>();
    step->info = {next_step_++,
                  static_cast<Mode>(below(4) + 1),
                  static_cast<std::int64_t>(below(1000)),
                  static_cast<std::int64_t>(random_() >> 2),
                  static_cast<std::int64_t>(below(1'000'000'000)),
                  options.session};
    define(options.tensor_count, *step);
    for (TensorId tensor = 0; tensor < dictionary.tensors.size(); ++tensor) {
      if (below(10) < 8) step->rows.push_back(make_row(tensor, options.with_histograms));
      if (options.with_raws && below(4) == 0) step->raws.push_back(make_raw(tensor));
      if (options.with_texts && below(4) == 0) {
        step->texts.push_back({tensor, std::string(below(20), 'a') + "\xC3\xA4\n"});
      }
    }
    std::shuffle(step->rows.begin(), step->rows.end(), random_);
    return step;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void define(std::size_t tensor_limit, StepRecord& step) {
    const bool first = dictionary.tensors.empty();
    while (dictionary.tensors.size() < tensor_limit && (first || below(3) == 0)) {
      const std::string name = "tensor/" + std::to_string(dictionary.tensors.size());
      step.new_tensors.push_back({name, {"all", std::string(below(5), 'c')}});
      dictionary.tensors.push_back(step.new_tensors.back());
      if (below(2) == 0) break;
    }
    if (first || below(4) == 0) {
      Layout layout;
      layout.dtype = static_cast<DType>(below(kDTypeMax) + 1);
      for (std::uint64_t rank = below(4); rank > 0; --rank) {
        layout.shape.push_back(static_cast<std::int64_t>(below(5)));
      }
      step.new_layouts.push_back(layout);
      dictionary.layouts.push_back(layout);
    }
  }

  double number() {
    switch (below(6)) {
      case 0:
        return 0.0;
      case 1:
        return -0.0;
      case 2:
        return static_cast<float>(below(1000)) * 0.5f;
      case 3:
        return std::numeric_limits<double>::quiet_NaN();
      case 4:
        return std::bit_cast<double>(random_());
      default:
        return 1.0 / static_cast<double>(below(1000) + 1);
    }
  }

  StatisticsRow make_row(TensorId tensor, bool with_histogram) {
    StatisticsRow row;
    row.tensor = tensor;
    row.layout = static_cast<LayoutId>(below(dictionary.layouts.size()));
    for (const auto field : kCountFields) {
      if (below(2) == 0) row.statistics.*field = random_() >> below(64);
    }
    for (const auto field : kNumberFields) row.statistics.*field = number();
    row.has_histogram = with_histogram && below(2) == 0;
    if (row.has_histogram) {
      row.histogram.top = static_cast<std::int16_t>(random_());
      for (std::uint64_t& count : row.histogram.counts) {
        if (below(3) == 0) count = random_() >> below(64);
      }
    }
    return row;
  }

  RawTensor make_raw(TensorId tensor) {
    RawTensor raw;
    raw.tensor = tensor;
    raw.layout = static_cast<LayoutId>(below(dictionary.layouts.size()));
    const Layout& layout = dictionary.layouts[raw.layout];
    std::size_t size = dtype_size_bytes(layout.dtype);
    for (const std::int64_t length : layout.shape) size *= static_cast<std::size_t>(length);
    raw.data = pool_.acquire(size);
    const auto fill = static_cast<unsigned char>(below(256));
    std::memset(raw.data.data.get(), fill, size);
    if (size > 0) raw.data.data.get()[size / 2] = static_cast<std::byte>(~fill);
    return raw;
  }

  std::mt19937_64 random_;
  BufferPool pool_{std::size_t{1} << 20};
  std::int64_t next_step_ = 0;
};

}  // namespace tensortap::trace
