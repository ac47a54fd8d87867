// SupervisionMasked: labels that are all, or nearly all, left out of the loss.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "SupervisionMasked";

constexpr std::string_view kDoc =
    R"(Looks at the share of labels that the loss leaves out (`ignore_index`, as in PyTorch's
cross entropy). Fires when

- a batch has no label that counts (warning; critical at 3 batches in a row);
- the share is above `max_share` on average over the last 50 batches (warning);
- no label is left out although the batch has padding (warning): a recorded `attention_mask` holds
  zeros;
- the number of labels that count changes more than 20 times within 50 batches (info).

Labels are integer tensors that `labels_regex` matches: the targets of a registered
CrossEntropyLoss or NLLLoss, or labels saved by the script. Raw values tell the exact share;
without them only batches that are masked wholly or not at all are known. A share that the script
logs is taken from `share_regex`. Training steps only.

Source: templates whose response marker is never found, so that everything is masked and the loss
is 0 or NaN: trl #1191, #1493, #1053. The limits are ours.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"labels_regex", ParameterType::kString,
     "(^|[/_])(labels|targets)(_output_\\d+)?$|(CrossEntropy|NLL)Loss_input_1$",
     "Pattern of names of label tensors."},
    {"share_regex", ParameterType::kString,
     "^scalar/(.*/)?(masked|ignored)_((label|token)s?_)?(share|fraction|ratio)$",
     "Pattern of names of a logged share of masked labels."},
    {"ignore_index", ParameterType::kFloat, "-100", "Label that the loss leaves out."},
    {"max_share", ParameterType::kFloat, "0.95", "Mean share of masked labels that is tolerated.",
     0.0, 1.0},
}};

constexpr std::array<std::string_view, 4> kCauses = {
    "a chat template whose response marker is never found in the tokens",
    "sequences cut off before the answer begins",
    "labels shifted or padded with the wrong index",
    "a data filter that leaves prompts only",
};

constexpr std::int64_t kAllInARow = 3;
constexpr std::size_t kWindow = 50;
constexpr double kMaxChange = 20.0;

class SupervisionMasked : public TensorRule {
 public:
  explicit SupervisionMasked(const Parameters& parameters)
      : TensorRule({.regexes = {parameters.get_string("labels_regex"),
                                parameters.get_string("share_regex")}}),
        ignore_index_(parameters.get_float("ignore_index")),
        max_share_(parameters.get_float("max_share")),
        logged_({}, {parameters.get_string("share_regex")}) {}

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    const bool is_logged = logged_.selects(worker, row.tensor);
    if (!is_logged && dtype_is_floating(layout_of(worker, row).dtype)) return;  // soft targets
    if (row.statistics.finite_count() == 0) return;
    const std::optional<double> share =
        is_logged ? std::optional(row.statistics.mean) : share_of(worker, row);
    if (!share) {
      note_missing_values();
      return;
    }
    Labels& labels = labels_.at(worker, row.tensor, step.mode);
    const ScalarPoint point{step, worker, row, tensor_name(worker, row), *share, findings};
    judge_share(point, labels);
    if (is_logged) return;
    judge_padding(point, labels);
    judge_change(point, labels);
  }

 private:
  struct Labels {
    Persistence all;
    Persistence all_in_a_row;
    RollingWindow shares{kWindow};
    Persistence high;
    Persistence padding;
    RollingWindow counts{kWindow};  // of labels that count
    Persistence change;
  };

  std::optional<double> share_of(const WorkerStep& worker, const StatisticsRow& row) const {
    const Statistics& s = row.statistics;
    if (s.min == ignore_index_ && s.max == ignore_index_) return 1.0;
    if (s.min > ignore_index_ || s.max < ignore_index_) return 0.0;
    const std::optional<TensorValues> values = values_of(worker, row);
    if (!values) return std::nullopt;
    const auto ignored =
        std::count(values->elements.begin(), values->elements.end(), ignore_index_);
    return static_cast<double>(ignored) / static_cast<double>(values->elements.size());
  }

  void judge_share(const ScalarPoint& point, Labels& labels) const {
    const bool is_all = point.value >= 1.0;
    if (labels.all.tell(is_all, 1, point.is_judged())) {
      point.add("masked_share", 1.0, 1.0, Severity::kWarning,
                fmt::format("No label of {} counts at step {}: the batch teaches nothing.",
                            point.name, point.step.step));
    }
    if (labels.all_in_a_row.tell(is_all, kAllInARow, point.is_judged())) {
      point.add("masked_share", 1.0, 1.0, Severity::kCritical,
                fmt::format("No label of {} counts at {} batches in a row up to step {}.",
                            point.name, kAllInARow, point.step.step));
    }
    labels.shares.push(point.value);
    const double mean = labels.shares.mean();
    const bool is_high = labels.shares.is_full() && mean > max_share_;
    if (!labels.high.tell(is_high, 1, point.is_judged())) return;
    point.add("masked_share", mean, max_share_, Severity::kWarning,
              fmt::format("{:.1f} % of the labels in {} were masked on average over {} batches up "
                          "to step {}.",
                          100.0 * mean, point.name, kWindow, point.step.step));
  }

  void judge_padding(const ScalarPoint& point, Labels& labels) {
    const StatisticsRow* mask = attention_mask_.row(point.worker);
    const bool is_unmasked =
        mask != nullptr && mask->statistics.zero_count > 0 && point.value == 0.0;
    if (!labels.padding.tell(is_unmasked, 1, point.is_judged())) return;
    point.add("masked_share", 0.0, 0.0, Severity::kWarning,
              fmt::format("No label of {} is masked at step {}, although the batch has padding: "
                          "the model learns to write padding.",
                          point.name, point.step.step));
  }

  static void judge_change(const ScalarPoint& point, Labels& labels) {
    const double count = (1.0 - point.value) * static_cast<double>(point.row.statistics.count);
    if (count < 0.5) return;
    labels.counts.push(count);
    const double ratio = labels.counts.maximum() / labels.counts.minimum();
    if (!labels.change.tell(ratio > kMaxChange, 1, point.is_judged())) return;
    point.add("count_ratio", ratio, kMaxChange, Severity::kInfo,
              fmt::format("Between {:.0f} and {:.0f} labels of {} counted within {} batches up to "
                          "step {}: with gradient accumulation, weight by tokens.",
                          labels.counts.minimum(), labels.counts.maximum(), point.name,
                          labels.counts.size(), point.step.step));
  }

  const double ignore_index_;
  const double max_share_;
  TensorSelector logged_;
  NamedScalar attention_mask_{"attention_mask"};
  PerSeries<Labels> labels_;
};

}  // namespace

const RuleDescriptor& supervision_masked_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Labels that are all, or nearly all, left out of the loss.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice = {"What is masked teaches nothing; when everything is, the loss is 0 or NaN and the "
                 "training goes on regardless.",
                 kCauses, "Decode one batch's labels and see which tokens count."},
      .parameters = kParameters,
      .collections = {},
      .create = make_rule<SupervisionMasked>,
  };
  return kDescriptor;
}

}  // namespace tensortap
