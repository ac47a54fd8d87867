// ThroughputRegression: a training that has become slower.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ThroughputRegression";

constexpr std::string_view kDoc =
    R"(Takes the median of the last `window` step times (the hook's `step_time`) and fires when,
after `min_points` points, it exceeds the median of all windows before by a factor of 1 / `ratio`
in `persist` windows in a row: the throughput has fallen below `ratio` of the usual. With a rate
(`rate_regex`: tokens or samples a second), which knows of batches of unequal length, that is
judged instead.

Source: a public alert script for Weights & Biases alerts at 1.25 times the median; in healthy
runs the 99th percentile is 1.28 times the median.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"rate_regex", ParameterType::kString,
     "^scalar/(.*/)?(throughput|(tokens|samples|steps)_per_(sec|second|s))$",
     "Pattern of names of rates, per second."},
    {"window", ParameterType::kInt, "30", "Points of a window.", 2},
    {"min_points", ParameterType::kInt, "300", "Points before anything is judged.", 2},
    {"ratio", ParameterType::kFloat, "0.8", "Throughput against the usual one that fires.", 0.0,
     1.0},
    {"persist", ParameterType::kInt, "3", "Windows in a row.", 1},
}};

constexpr std::array<std::string_view, 1> kCollections = {"timings"};

constexpr std::array<std::string_view, 4> kCauses = {
    "a device that is throttled by heat or power",
    "data that no longer come from a cache",
    "memory that is fragmented, or swapped",
    "another job on the same machine",
};

class ThroughputRegression : public ScalarRule {
 public:
  explicit ThroughputRegression(const Parameters& parameters)
      : ScalarRule({.regexes = {"^step_time$", parameters.get_string("rate_regex")}}),
        window_(static_cast<std::size_t>(parameters.get_int("window"))),
        min_points_(parameters.get_int("min_points")),
        ratio_(parameters.get_float("ratio")),
        persist_(parameters.get_int("persist")),
        rate_(parameters.get_string("rate_regex")) {}

 protected:
  void point(const ScalarPoint& point) override {
    const bool is_time = point.name == "step_time";
    if ((is_time && rate_.is_known(point.worker)) || !(point.value > 0.0)) return;
    Pace& pace = paces_.at(point.worker, point.row.tensor, point.step.mode);
    if (pace.points == 0) pace.newest = RollingWindow(window_);
    pace.newest.push(is_time ? 1.0 / point.value : point.value);
    ++pace.points;
    if (pace.points % static_cast<std::int64_t>(window_) != 0) return;
    const double rate = pace.newest.median();
    const bool is_ready = pace.points > min_points_ && pace.usual.size() > 0;
    const double usual = is_ready ? pace.usual.median() : 0.0;
    // A hair of room, since the reciprocal of a time is rounded.
    const bool is_slow = is_ready && rate < ratio_ * usual * (1.0 - 1e-6);
    if (!is_slow) pace.usual.push(rate);
    if (!pace.slow.tell(is_slow, persist_, point.is_judged())) return;
    point.add("median", rate, ratio_ * usual, Severity::kWarning,
              fmt::format("The throughput has fallen to {:.0f} % of the usual by step {}, over {} "
                          "windows of {} points ({}).",
                          100.0 * rate / usual, point.step.step, persist_, window_, point.name));
  }

 private:
  struct Pace {
    std::int64_t points = 0;
    RollingWindow newest;
    RollingWindow usual{1000};  // medians of windows
    Persistence slow;
  };

  const std::size_t window_;
  const std::int64_t min_points_;
  const double ratio_;
  const std::int64_t persist_;
  NamedScalar rate_;
  PerSeries<Pace> paces_;
};

}  // namespace

const RuleDescriptor& throughput_regression_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A training that has become slower.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kSystem,
      .advice =
          {"Nothing is wrong with the model, but the same result costs more time and money.",
           kCauses,
           "Compare clocks, temperatures, data-loading time and memory with the start of the run."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<ThroughputRegression>,
  };
  return kDescriptor;
}

}  // namespace tensortap
