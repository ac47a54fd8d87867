// Random runs through all rules at once, three ways: whatever they find, they find it everywhere.
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "rules/registry.h"
#include "rules/three_ways_for_test.h"

namespace tensortap {
namespace {

// Tensors of the kinds that rules look for; the numbers are nobody's.
struct Kind {
  const char* name;
  const char* collection;
  int size;
  DType dtype = DType::kFloat32;
};
constexpr std::array<Kind, 16> kKinds = {{
    {"gradient/Net_fc1.weight", "gradients", 6},
    {"gradient/Net_fc2.bias", "gradients", 1},
    {"Net_fc1.weight", "weights", 6},
    {"Net_fc2.bias", "biases", 1},
    {"CrossEntropyLoss_output_0", "losses", 1},
    {"fc1.relu_output_0", "relu_output", 8},
    {"fc1.tanh_output_0", "tanh_output", 8},
    {"Net_input_0", "model_inputs", 12},
    {"embedding0_input_0", "embedding_input", 5, DType::kInt64},
    {"labels", "labels", 4, DType::kInt64},
    {"predictions", "predictions", 4, DType::kInt64},
    {"learning_rate/Adam/0", "learning_rates", 1, DType::kFloat64},
    {"optimizer/Net_fc1.weight/exp_avg_sq", "optimizer_variables", 6},
    {"loss_scale", "loss_scaling", 1, DType::kFloat64},
    {"feature_importance/weight/f0", "feature_importance", 1},
    {"scalar/train/entropy_loss", "scalars", 1, DType::kFloat64},
}};

class RandomRun {
 public:
  explicit RandomRun(unsigned seed) : random_(seed) {}

  std::vector<TestRow> make(int step_count) {
    std::vector<TestRow> rows;
    const bool has_modes = below(2) == 0;
    const int worker_count = 1 + below(2);
    std::int64_t step = below(3);
    std::array<std::int64_t, 2> mode_steps{};
    for (int i = 0; i < step_count; ++i, step += 1 + below(3)) {
      const bool is_eval = has_modes && below(4) == 0;
      TestRow row;
      row.info.step = row.info.mode_step = step;
      if (has_modes) {
        row.info.mode = is_eval ? Mode::kEval : Mode::kTrain;
        row.info.mode_step = mode_steps[is_eval ? 1 : 0]++;
      }
      row.info.wall_time_ns = start_ns_ + step * 1'000'000'000;
      row.info.duration_ns = 900'000'000;
      for (int worker = 0; worker < worker_count; ++worker) {
        row.worker = "worker_" + std::to_string(worker);
        row.tensors = tensors();
        rows.push_back(row);
      }
    }
    return rows;
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  std::vector<TestTensor> tensors() {
    std::vector<TestTensor> tensors;
    for (const Kind& kind : kKinds) {
      if (below(8) == 0 && !tensors.empty()) continue;
      TestTensor tensor{kind.name, {}, {kind.collection}, kind.dtype};
      tensor.is_raw = below(2) == 0;
      for (int i = 0; i < kind.size; ++i) tensor.values.push_back(number(kind.dtype));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  double number(DType dtype) {
    if (!dtype_is_floating(dtype)) return below(3);
    const int kind = below(40);
    if (kind == 0) return std::numeric_limits<double>::quiet_NaN();
    if (kind == 1) return std::numeric_limits<double>::infinity();
    if (kind < 8) return 0.0;
    return std::ldexp(static_cast<double>(below(2001) - 1000), below(40) - 35);
  }

  std::mt19937 random_;
  // A run of today: whoever waits for its next step compares with the clock.
  const std::int64_t start_ns_ = wall_time_ns();
};

// Every built-in rule that can do with its defaults, and a condition.
std::vector<RuleSpec> all_rules() {
  std::vector<RuleSpec> specs{parse_rule_spec("abs_mean(gradients) > 2 * loss for 2 steps")};
  for (const RuleDescriptor* rule : builtin_rules()) {
    try {
      RuleEngine().add({std::string(rule->name), {}, {}});
      specs.push_back({std::string(rule->name), {}, {}});
    } catch (const Error&) {
      RuleSpec spec{std::string(rule->name), {{"tensor_regex", "."}}, {}};
      try {
        RuleEngine().add(spec);
        specs.push_back(spec);
      } catch (const Error&) {
        // It needs something that a random run does not have, such as another run.
      }
    }
  }
  return specs;
}

TEST(RuleAgreement, AllRulesFindTheSameOverRandomRuns) {
  const std::vector<RuleSpec> specs = all_rules();
  std::size_t finding_count = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const RuleOutcome outcome = check_three_ways(specs, RandomRun(seed).make(40));
    finding_count += outcome.findings.size();
    for (const RuleReport& report : outcome.reports) {
      EXPECT_NE(report.status, RuleStatus::kInProgress) << report.name;
    }
  }
  EXPECT_GT(finding_count, 1000u);  // runs at which every rule kept silent would prove nothing
}

}  // namespace
}  // namespace tensortap
