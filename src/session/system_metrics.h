// Brings the samples of the machine into the run: as tensors system/<metric> of collection
// `system`, each with all samples since the last ones, and their times in system/time (seconds
// since the Unix epoch, float64). Used by Session. Same threads as Recorder::end_step.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "capture/recorder.h"
#include "monitor/sampler.h"

namespace tensortap {

class SystemMetrics : public StepSource {
 public:
  // Samples wait for a step that is saved, but at most this many: then they go into a step that
  // holds nothing else.
  static constexpr std::size_t kMaxWaiting = 64;
  // At the end of the run they go into the last step when nothing of it was saved, else into one of
  // their own, which fewer are not worth.
  static constexpr std::size_t kMinForOwnStep = 8;
  static constexpr const char* kCollection = "system";

  // Starts sampling. `recorder` must know the collection and live as long as this object records.
  SystemMetrics(const SamplerOptions& options, Recorder& recorder);

  void add_to_step(bool is_due) noexcept override;
  void add_rest() noexcept override;
  void stop() noexcept { sampler_.stop(); }

 private:
  void record_samples();
  void record_metric(const MetricInfo& info);
  TensorId id_of(std::size_t index, std::string_view name);

  Recorder& recorder_;
  Sampler sampler_;
  std::vector<Sample> samples_;  // being recorded
  std::vector<float> numbers_;
  std::vector<double> times_;
  std::array<std::optional<TensorId>, kMetricCount + 1> ids_;  // of the metrics and the time
  bool has_failed_ = false;
};

}  // namespace tensortap
