// ResumeDiscontinuity: a training that did not go on where it had stopped.
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "ResumeDiscontinuity";

constexpr std::string_view kDoc =
    R"(At a resume (the run's next session) it compares the first 20 points after with the last 50
before:

- the loss has a robust z of 6 or more, of its logarithm where it is positive (warning);
- a learning rate jumps by more than 10 % from the last one at the first point (warning);
- the mean of an optimizer's second moment (`…/exp_avg_sq`) falls to less than a tenth at the
  first point (critical);
- the loss scale is back at what it was at the very first point of the run, though it had left it
  (warning).

Source: lightning #10766 (scaler), prime-diloco #97 (position in the data), transformers #33336,
virtex #18, diffusers PR #8312 (learning rate).)";

constexpr std::array<ParameterDescriptor, 3> kParameters = {{
    {"loss_regex", ParameterType::kString, "(?!)",
     "Pattern of names of scalars that are losses, beside the collection losses."},
    {"points", ParameterType::kInt, "20", "Points after a resume that are judged.", 1},
    {"z", ParameterType::kFloat, "6", "Robust z of the loss that fires.", 0.0},
}};

constexpr std::array<std::string_view, 4> kCollections = {"losses", "learning_rates",
                                                          "optimizer_variables", "loss_scaling"};

constexpr std::array<std::string_view, 4> kCauses = {
    "the optimizer's, scheduler's or scaler's state was not saved or not loaded",
    "the data begin anew",
    "weights of another checkpoint than was meant",
    "another batch size or number of workers",
};

class ResumeDiscontinuity : public ScalarRule {
 public:
  explicit ResumeDiscontinuity(const Parameters& parameters)
      : ScalarRule({.collections = {"losses"},
                    .regexes = {parameters.get_string("loss_regex"), "^learning_rate/",
                                "^loss_scale$", "^optimizer/.*/exp_avg_sq$"}}),
        points_(parameters.get_int("points")),
        z_(parameters.get_float("z")) {}

 protected:
  void point(const ScalarPoint& point) override {
    Series& series = series_.at(point.worker, point.row.tensor, point.step.mode);
    const std::uint32_t session = point.worker.record->info.session;
    if (series.count == 0) {
      series.session = session;
      series.very_first = point.value;
    }
    if (session != series.session) {
      series.session = session;
      series.since_resume = 0;
    }
    ++series.count;
    const bool is_resumed = series.since_resume >= 0 && series.since_resume < points_;
    const bool is_first = series.since_resume == 0;
    if (is_resumed) ++series.since_resume;
    const Kind kind = kind_of(point);
    if (kind == Kind::kLoss) {
      const bool is_off = is_resumed && judge_loss(point, series);
      if (!is_off) series.push(point.value);
    } else if (is_first) {
      judge_state(point, series, kind);
    }
    series.last = point.value;
  }

 private:
  enum class Kind { kLoss, kRate, kMoment, kScale };
  static constexpr double kFloor = 0.01;
  static constexpr std::size_t kMinPoints = 5;

  struct Series {
    std::uint64_t count = 0;
    std::uint32_t session = 0;
    std::int64_t since_resume = -1;
    double very_first = 0.0;
    double last = 0.0;
    RollingWindow past{50};
    RollingWindow logs{50};
    Persistence off;

    void push(double value) {
      past.push(value);
      logs.push(value > 0.0 ? std::log(value) : 0.0);
    }
  };

  static Kind kind_of(const ScalarPoint& point) {
    if (point.name.starts_with("learning_rate/")) return Kind::kRate;
    if (point.name == "loss_scale") return Kind::kScale;
    return point.name.ends_with("/exp_avg_sq") ? Kind::kMoment : Kind::kLoss;
  }

  bool judge_loss(const ScalarPoint& point, Series& series) const {
    if (series.past.size() < kMinPoints) return false;
    const bool has_logs = point.value > 0.0 && series.past.minimum() > 0.0;
    const double z = has_logs ? series.logs.robust_z(std::log(point.value), kFloor)
                              : series.past.robust_z(point.value, kFloor);
    if (series.off.tell(z >= z_, 1, point.is_judged())) {
      point.add("mean", point.value, series.past.median(), Severity::kWarning,
                fmt::format("{} is {:.4g} at step {}, after a resume; before it, it stood at "
                            "{:.4g} (robust z {:.1f}).",
                            point.name, point.value, point.step.step, series.past.median(), z));
    }
    return z >= z_;
  }

  static void judge_state(const ScalarPoint& point, const Series& series, Kind kind) {
    if (!point.is_judged()) return;
    const double last = series.last;
    const auto add = [&](Severity severity, std::string_view what) {
      point.add("mean", point.value, last, severity,
                fmt::format("{} is {:.4g} at step {}, the first after a resume, and was {:.4g} "
                            "before: {}.",
                            point.name, point.value, point.step.step, last, what));
    };
    if (kind == Kind::kMoment && point.value < 0.1 * last) {
      add(Severity::kCritical, "the optimizer's state was not restored");
    } else if (kind == Kind::kRate && std::abs(point.value - last) > 0.1 * last) {
      add(Severity::kWarning, "the schedule does not go on");
    } else if (kind == Kind::kScale && point.value == series.very_first && point.value != last) {
      add(Severity::kWarning, "the scaler's state was not restored");
    }
  }

  const std::int64_t points_;
  const double z_;
  PerSeries<Series> series_;
};

}  // namespace

const RuleDescriptor& resume_discontinuity_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A training that did not go on where it had stopped.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice = {"What is not restored is learnt again at best; a reset optimizer takes wild steps "
                 "first.",
                 kCauses,
                 "Check what the checkpoint holds and what is loaded: weights, optimizer, "
                 "scheduler, scaler, random states, position in the data."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<ResumeDiscontinuity>,
  };
  return kDescriptor;
}

}  // namespace tensortap
