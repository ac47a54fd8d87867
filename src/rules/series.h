// What rules need to judge a quantity over time: rolling windows with robust statistics, averages,
// trends, and conditions that must hold for a while. A window holds what came before the point that
// is judged; a point that fires is not pushed, so that an illness does not become the norm. Nothing
// here allocates after the first points. Used by rules/builtin. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rules/rule.h"

namespace tensortap {

// The newest `capacity` values. A push costs one search and one move of what lies sorted.
class RollingWindow {
 public:
  explicit RollingWindow(std::size_t capacity = 0) : capacity_(capacity) {}

  void push(double value);  // finite
  void clear();
  std::size_t size() const { return sorted_.size(); }
  bool is_full() const { return sorted_.size() == capacity_; }
  // 0 is the oldest.
  double operator[](std::size_t age) const { return ring_[(start_ + age) % ring_.size()]; }

  // Of a window that is not empty.
  double minimum() const { return sorted_.front(); }
  double maximum() const { return sorted_.back(); }
  double mean() const;
  double standard_deviation() const;    // population
  double quantile(double share) const;  // linear between neighbours, as NumPy's default
  double median() const { return quantile(0.5); }
  double mad() const;  // median absolute deviation from the median
  // 0.6745 (x - median) / max(MAD, floor): standard deviations of a normal distribution, which
  // outliers in the window do not widen.
  double robust_z(double x, double floor) const;

 private:
  std::size_t capacity_;
  std::size_t start_ = 0;  // of ring_, where the oldest is
  std::vector<double> ring_;
  std::vector<double> sorted_;
};

// m <- factor m + (1 - factor) x, begun with the first x.
class MovingAverage {
 public:
  explicit MovingAverage(double factor) : factor_(factor) {}
  void push(double value) {
    value_ = count_++ == 0 ? value : factor_ * value_ + (1 - factor_) * value;
  }
  double value() const { return value_; }
  std::uint64_t count() const { return count_; }

 private:
  double factor_;
  double value_ = 0.0;
  std::uint64_t count_ = 0;
};

// A condition that counts when it was true at `needed` evaluated points in a row, and is told once
// until it has been false.
class Persistence {
 public:
  // Whether to tell now. What is due at a point that cannot be told (a step before start_step) is
  // told at the first that can.
  bool tell(bool is_true, std::int64_t needed, bool can_tell) {
    count_ = is_true ? count_ + 1 : 0;
    if (!is_true) is_told_ = false;
    if (count_ < needed || is_told_ || !can_tell) return false;
    return is_told_ = true;
  }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t count_ = 0;
  bool is_told_ = false;
};

// Whether a positive quantity, mostly a norm, jumped above its past: robust z of its logarithm and
// its ratio to the median. Spikes stay out of the past.
struct SpikeLimits {
  std::size_t window = 100;
  std::size_t min_points = 25;
  double z = 6.0;
  double floor = 0.05;
  double ratio = 3.0;
};
struct Spike {
  double z = 0.0;
  double median = 0.0;
};
class NormHistory {
 public:
  NormHistory() = default;
  explicit NormHistory(const SpikeLimits& limits) : logs_(limits.window), limits_(limits) {}
  // Judges against the past, then lets a norm that is no spike join it. Norms that are not positive
  // and finite are left out.
  std::optional<Spike> judge(double norm);

 private:
  RollingWindow logs_{SpikeLimits{}.window};
  SpikeLimits limits_;
};

// The share of points that lie 7 standard deviations or more from the mean of the 1000 before, as
// OLMo 2 scores a run.
class SpikeScore {
 public:
  void push(double value);
  std::uint64_t spikes() const { return spikes_; }
  std::uint64_t judged() const { return judged_; }

 private:
  RollingWindow window_{1000};
  std::uint64_t spikes_ = 0;
  std::uint64_t judged_ = 0;
};

struct Line {
  double slope = 0.0;
  double intercept = 0.0;
  double r_squared = 0.0;  // 1 for a perfect line, 0 also when y is constant
};
// Least squares. Both of one size, at least 2.
Line fit_line(std::span<const double> x, std::span<const double> y);

// State of each worker's tensor, apart for steps of mode TRAIN and of mode GLOBAL.
template <typename T>
class PerSeries {
 public:
  T& at(const WorkerStep& worker, TensorId tensor, Mode mode) {
    const std::size_t place = 2 * worker.worker_index + (mode == Mode::kTrain ? 1 : 0);
    if (states_.size() <= place) states_.resize(place + 1);
    std::vector<T>& states = states_[place];
    if (states.size() <= tensor) states.resize(tensor + 1);
    return states[tensor];
  }

 private:
  std::vector<std::vector<T>> states_;
};

}  // namespace tensortap
