#include "rules/series.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tensortap {

void RollingWindow::push(double value) {
  if (capacity_ == 0) return;
  if (ring_.size() < capacity_) {
    if (ring_.empty()) {
      ring_.reserve(capacity_);
      sorted_.reserve(capacity_);
    }
    ring_.push_back(value);
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), value), value);
    return;
  }
  const double oldest = ring_[start_];
  ring_[start_] = value;
  start_ = (start_ + 1) % capacity_;
  // Moves what lies between the place that gets free and the place that is needed.
  const auto free = std::lower_bound(sorted_.begin(), sorted_.end(), oldest);
  if (value >= oldest) {
    const auto place = std::upper_bound(free, sorted_.end(), value);
    std::move(free + 1, place, free);
    *(place - 1) = value;
  } else {
    const auto place = std::upper_bound(sorted_.begin(), free, value);
    std::move_backward(place, free, free + 1);
    *place = value;
  }
}

void RollingWindow::clear() {
  ring_.clear();
  sorted_.clear();
  start_ = 0;
}

double RollingWindow::mean() const {
  return std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / static_cast<double>(size());
}

double RollingWindow::standard_deviation() const {
  const double mean = this->mean();
  double sum = 0.0;
  for (const double value : sorted_) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(size()));
}

double RollingWindow::quantile(double share) const {
  const double place = share * static_cast<double>(size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, size() - 1);
  return std::lerp(sorted_[below], sorted_[above], place - static_cast<double>(below));
}

double RollingWindow::mad() const {
  const double middle = median();
  // The deviations ascend on both sides of the median: half a merge finds the middle ones.
  auto right = std::lower_bound(sorted_.begin(), sorted_.end(), middle);
  auto left = right;
  double previous = 0.0;
  double deviation = 0.0;
  for (std::size_t taken = 0; taken <= size() / 2; ++taken) {
    previous = deviation;
    const bool goes_left = right == sorted_.end() ||
                           (left != sorted_.begin() && middle - *(left - 1) < *right - middle);
    deviation = goes_left ? middle - *--left : *right++ - middle;
  }
  return size() % 2 == 1 ? deviation : (previous + deviation) / 2.0;
}

double RollingWindow::robust_z(double x, double floor) const {
  return 0.6745 * (x - median()) / std::max(mad(), floor);
}

std::optional<Spike> NormHistory::judge(double norm) {
  if (!(norm > 0.0) || !std::isfinite(norm)) return std::nullopt;
  const double log = std::log(norm);
  if (logs_.size() >= limits_.min_points) {
    const double middle = logs_.median();
    // The ratio first: it is cheap, and mostly settles it.
    if (log - middle >= std::log(limits_.ratio) &&
        logs_.robust_z(log, limits_.floor) >= limits_.z) {
      return Spike{logs_.robust_z(log, limits_.floor), std::exp(middle)};
    }
  }
  logs_.push(log);
  return std::nullopt;
}

void SpikeScore::push(double value) {
  if (window_.is_full()) {
    ++judged_;
    if (std::abs(value - window_.mean()) >= 7.0 * window_.standard_deviation()) ++spikes_;
  }
  window_.push(value);
}

Line fit_line(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0.0;
  double xy = 0.0;
  double yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  Line line;
  line.slope = xx > 0.0 ? xy / xx : 0.0;
  line.intercept = mean_y - line.slope * mean_x;
  line.r_squared = xx > 0.0 && yy > 0.0 ? xy * xy / (xx * yy) : 0.0;
  return line;
}

}  // namespace tensortap
