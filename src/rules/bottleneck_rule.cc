#include "rules/bottleneck_rule.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "rules/shared_parameters.h"

namespace tensortap {
namespace {

constexpr std::array<std::string_view, 2> kScopes = {"any_core", "mean_cpu"};

double least_known(std::span<const double> values) {
  double least = std::numeric_limits<double>::quiet_NaN();
  for (const double value : values) least = std::fmin(least, value);
  return least;
}

double greatest_known(std::span<const double> values) {
  double greatest = std::numeric_limits<double>::quiet_NaN();
  for (const double value : values) greatest = std::fmax(greatest, value);
  return greatest;
}

}  // namespace

BottleneckRule::BottleneckRule(std::string_view rule, const Parameters& parameters,
                               Metric core_metric, std::string_view core_threshold,
                               std::string_view what)
    : SystemRule({Metric::kGpuUtilization, core_metric}),
      core_metric_(core_metric),
      what_(what),
      threshold_(parameters.get_float("threshold")),
      gpu_threshold_(parameters.get_float("gpu_threshold")),
      core_threshold_(parameters.get_float(core_threshold)),
      patience_(static_cast<std::uint64_t>(parameters.get_int("patience"))),
      window_(static_cast<std::size_t>(parameters.get_int("window"))),
      is_mean_(choice_of(rule, parameters, "scope", kScopes) == 1) {}

std::optional<bool> BottleneckRule::is_bottleneck(const MachineSample& sample) const {
  const double gpu = least_known(sample.of(Metric::kGpuUtilization));
  const std::span<const double> cores = sample.of(core_metric_);
  const double core = is_mean_ ? mean_of_known(cores) : greatest_known(cores);
  if (std::isnan(gpu) || std::isnan(core)) return std::nullopt;
  return gpu < gpu_threshold_ && core > core_threshold_;
}

void BottleneckRule::see(const MachinePoint& point, const MachineSample& sample) {
  const std::optional<bool> is_one = is_bottleneck(sample);
  if (!is_one) return;
  State& state = states_.at(point.worker);
  ++state.samples;
  state.bottlenecks += *is_one ? 1 : 0;
  std::uint64_t judged = state.samples;
  if (window_ > 0) {
    state.newest.push_back(*is_one);
    if (state.newest.size() > window_) {
      state.bottlenecks -= state.newest.front() ? 1 : 0;
      state.newest.pop_front();
    }
    judged = state.newest.size();
  }
  const double share = 100.0 * static_cast<double>(state.bottlenecks) / static_cast<double>(judged);
  const bool fires = state.samples > patience_ && share > threshold_;
  if (!state.persistence.tell(fires, 1, point.is_judged())) return;
  point.add(
      core_metric_, "bottleneck_share", share, threshold_,
      fmt::format("In {:.1f} % of {} samples a GPU idled (below {} %) while {} {} (above {} %).",
                  share, judged, gpu_threshold_, is_mean_ ? "the mean core" : "a core", what_,
                  core_threshold_));
}

}  // namespace tensortap
