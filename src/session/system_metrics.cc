#include "session/system_metrics.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>

#include "base/log.h"

namespace tensortap {

SystemMetrics::SystemMetrics(const SamplerOptions& options, Recorder& recorder)
    : recorder_(recorder), sampler_(options) {}

void SystemMetrics::add_to_step(bool is_due) noexcept {
  const std::size_t pending = sampler_.pending();
  if (pending == 0 || has_failed_ || !(is_due || pending >= kMaxWaiting)) return;
  try {
    record_samples();
  } catch (const std::exception& error) {
    has_failed_ = true;
    log(LogLevel::kWarning, std::string("system metrics are not recorded: ") + error.what());
  }
}

void SystemMetrics::add_rest() noexcept { add_to_step(sampler_.pending() >= kMinForOwnStep); }

TensorId SystemMetrics::id_of(std::size_t index, std::string_view name) {
  if (!ids_[index]) {
    const std::array<std::string, 1> collections = {kCollection};
    ids_[index] = recorder_.intern("system/" + std::string(name), collections);
  }
  return *ids_[index];
}

void SystemMetrics::record_samples() {
  sampler_.take(samples_);
  times_.clear();
  for (const Sample& sample : samples_) times_.push_back(sample.time_s);
  const std::array<std::int64_t, 1> shape = {static_cast<std::int64_t>(times_.size())};
  recorder_.record_raw(id_of(kMetricCount, "time"), {times_.data(), DType::kFloat64, shape, {}});
  for (const MetricInfo& info : kMetrics) record_metric(info);
}

// Samples x devices, or samples; unknown values are NaN. Nothing when all are unknown.
void SystemMetrics::record_metric(const MetricInfo& info) {
  std::size_t width = 0;
  for (const Sample& sample : samples_) width = std::max(width, sample.of(info.metric).size());
  if (width == 0) return;
  numbers_.assign(samples_.size() * width, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const std::vector<float>& values = samples_[i].of(info.metric);
    std::copy(values.begin(), values.end(),
              numbers_.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const std::array<std::int64_t, 2> shape = {static_cast<std::int64_t>(samples_.size()),
                                             static_cast<std::int64_t>(width)};
  const std::span<const std::int64_t> dimensions(shape.data(), info.is_per_device ? 2 : 1);
  recorder_.record_raw(id_of(static_cast<std::size_t>(info.metric), info.name),
                       {numbers_.data(), DType::kFloat32, dimensions, {}});
}

}  // namespace tensortap
