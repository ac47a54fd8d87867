// A training small enough for a test and real enough to go wrong: linear regression by SGD on
// random data, recorded through a Session. Used by the tests of session/ and cli/, and an example
// of how a C++ training drives one. Not thread-safe.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "session/session.h"

namespace tensortap::test_support {

// A directory that goes away with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tensortap-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Saves everything at every step; weights, gradients and losses are its collections.
inline SessionOptions session_options(std::string out_dir, std::vector<RuleSpec> rules = {}) {
  SessionOptions options;
  options.recorder.out_dir = std::move(out_dir);
  options.recorder.framework = "tiny 1.0";
  options.recorder.include_collections = {"weights", "gradients", "losses"};
  SaveConfigMode every_step;
  every_step.save_interval = 1;
  options.recorder.save_config = SaveConfig::for_all_modes(every_step);
  options.rules = std::move(rules);
  return options;
}

inline CollectionSet tiny_collections() {
  CollectionSet collections;
  collections.get_or_create("weights").include("^linear\\.weight$");
  collections.get_or_create("gradients").include("^gradient/");
  collections.get_or_create("losses").include("^loss");
  return collections;
}

class TinyTraining {
 public:
  static constexpr std::size_t kFeatures = 8;
  static constexpr std::size_t kSamples = 32;

  explicit TinyTraining(SessionOptions options) : session_(std::move(options), tiny_collections()) {
    session_.recorder().set_mode(Mode::kTrain);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& x : inputs_) x = normal(random);
    for (float& y : targets_) y = normal(random);
    weight_id_ = session_.recorder().intern("linear.weight");
    gradient_id_ = session_.recorder().intern("gradient/linear.weight");
    loss_id_ = session_.recorder().intern("loss_output_0");
  }

  Session& session() { return session_; }

  // At most `step_count` steps; fewer when a rule stops the training. Gives the steps taken.
  int train(int step_count, float learning_rate) {
    for (int step = 0; step < step_count; ++step) {
      session_.recorder().begin_step();
      const float loss = compute_gradient();
      record(loss);
      for (std::size_t j = 0; j < kFeatures; ++j) weight_[j] -= learning_rate * gradient_[j];
      session_.recorder().end_step();
      if (session_.obey()) return step + 1;
    }
    return step_count;
  }

 private:
  // The mean squared error; the gradient goes to gradient_.
  float compute_gradient() {
    float loss = 0.0f;
    gradient_.fill(0.0f);
    for (std::size_t i = 0; i < kSamples; ++i) {
      float error = -targets_[i];
      for (std::size_t j = 0; j < kFeatures; ++j) error += inputs_[i * kFeatures + j] * weight_[j];
      loss += error * error / kSamples;
      for (std::size_t j = 0; j < kFeatures; ++j) {
        gradient_[j] += 2.0f * error * inputs_[i * kFeatures + j] / kSamples;
      }
    }
    return loss;
  }

  void record(const float& loss) {
    const std::array<std::int64_t, 1> shape = {kFeatures};
    Recorder& recorder = session_.recorder();
    recorder.record(weight_id_, {weight_.data(), DType::kFloat32, shape, {}});
    recorder.record(gradient_id_, {gradient_.data(), DType::kFloat32, shape, {}});
    recorder.record(loss_id_, {&loss, DType::kFloat32, {}, {}});
  }

  Session session_;
  std::array<float, kFeatures * kSamples> inputs_{};
  std::array<float, kSamples> targets_{};
  std::array<float, kFeatures> weight_{};
  std::array<float, kFeatures> gradient_{};
  TensorId weight_id_ = 0;
  TensorId gradient_id_ = 0;
  TensorId loss_id_ = 0;
};

inline constexpr float kGoodRate = 0.05f;
inline constexpr float kBadRate = 10.0f;  // the loss grows until it is infinite

}  // namespace tensortap::test_support
