// What the tests of Recorder share: a sink that keeps the steps, recorders into a storage in
// memory, and short ways to record and to ask. Tests only.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/recorder.h"

namespace tensortap {

// Keeps every step that ends, and the names that go with the ids.
class KeepingSink : public StepSink {
 public:
  void on_step(const std::shared_ptr<const StepRecord>& step,
               const Dictionary& dictionary) noexcept override {
    steps.push_back(step);
    names.clear();
    for (const TensorInfo& tensor : dictionary.tensors) names.push_back(tensor.name);
    layouts = dictionary.layouts;
  }

  std::vector<std::int64_t> global_steps() const {
    std::vector<std::int64_t> result;
    for (const auto& step : steps) result.push_back(step->info.step);
    return result;
  }
  // Mode steps at which the tensor has a row.
  std::vector<std::int64_t> mode_steps(std::string_view tensor, Mode mode) const {
    std::vector<std::int64_t> result;
    for (const auto& step : steps) {
      if (step->info.mode == mode && row(*step, tensor) != nullptr) {
        result.push_back(step->info.mode_step);
      }
    }
    return result;
  }
  const StatisticsRow* row(const StepRecord& step, std::string_view tensor) const {
    for (const StatisticsRow& candidate : step.rows) {
      if (names.at(candidate.tensor) == tensor) return &candidate;
    }
    return nullptr;
  }
  const RawTensor* raw(const StepRecord& step, std::string_view tensor) const {
    for (const RawTensor& candidate : step.raws) {
      if (names.at(candidate.tensor) == tensor) return &candidate;
    }
    return nullptr;
  }

  std::vector<std::shared_ptr<const StepRecord>> steps;
  std::vector<std::string> names;
  std::vector<Layout> layouts;
};

// A float32 vector with a view of it.
struct FloatTensor {
  explicit FloatTensor(std::vector<float> given)
      : values(std::move(given)), shape{static_cast<std::int64_t>(values.size())} {}
  TensorView view() const { return {values.data(), DType::kFloat32, shape, {}}; }

  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

inline CollectionSet builtin_collections() {
  CollectionSet set;
  set.get_or_create("all");
  set.get_or_create("default");
  set.get_or_create("weights").include("^(?!gradient).*weight");
  set.get_or_create("biases").include("^(?!gradient).*bias");
  set.get_or_create("gradients").include("^gradient");
  set.get_or_create("losses").include("[Ll]oss_(?!input).*output");
  return set;
}

inline SaveConfig every(std::int64_t interval) {
  return SaveConfig::for_all_modes({.save_interval = interval});
}

// A run in memory that nobody else has.
inline std::shared_ptr<Storage> fresh_storage() {
  static std::atomic<int> count = 0;
  return open_storage("mem:recorder_test_" + std::to_string(count++));
}

inline RecorderOptions recorder_options(std::vector<std::string> included, std::int64_t interval,
                                        std::shared_ptr<Storage> storage = fresh_storage()) {
  RecorderOptions options;
  options.storage = std::move(storage);
  options.include_collections = std::move(included);
  options.save_config = every(interval);
  return options;
}

}  // namespace tensortap
