// NLPSequenceRatio: too large a share of padding, unknown or other special tokens.
#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/error.h"
#include "rules/registry.h"
#include "rules/shared_parameters.h"
#include "rules/values.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "NLPSequenceRatio";
constexpr std::string_view kRegex = ".*embedding0_input_0";
constexpr std::string_view kTyped = "embedding_input";

constexpr std::string_view kDoc =
    R"(Counts how many elements of a tensor of token ids are each of `token_values`. Fires when the
share of one of them exceeds its entry in `token_thresholds_percent`; each is judged by itself.

Token 0, and tokens outside the range of the ids, are counted from statistics; others need raw
values.

Looks at the collection `embedding_input`, which holds the inputs of embedding layers, and at names
that `tensor_regex` matches, at training steps: steps of mode TRAIN, or GLOBAL where the script sets
no mode. Several workers are judged one by one.

Source: SageMaker Debugger's rule of that name.)";

constexpr std::array<ParameterDescriptor, 5> kParameters = {{
    {"collection_names", ParameterType::kList, "",
     "Collections to look at instead of `embedding_input`, separated by commas."},
    {"tensor_regex", ParameterType::kList, kRegex,
     "Patterns of names of token ids, separated by commas; another than the default replaces the "
     "collection too."},
    {"token_values", ParameterType::kList, "0", "Token ids, separated by commas."},
    {"token_thresholds_percent", ParameterType::kList, "50",
     "For each token the percentage of elements above which the rule fires."},
    kWorkerPolicyParameter,
}};

constexpr std::array<std::string_view, 1> kCollections = {kTyped};

constexpr std::array<std::string_view, 3> kCauses = {
    "sequences padded to a fixed length, or batches of very different lengths",
    "a vocabulary that is too small, or of another language",
    "a tokenizer that does not belong to the model",
};

class NlpSequenceRatio : public TensorRule {
 public:
  explicit NlpSequenceRatio(const Parameters& parameters)
      : TensorRule(typed_scope(kName, parameters, kRegex, {std::string(kTyped)})),
        tokens_(numbers_of(kName, parameters, "token_values")),
        thresholds_(numbers_of(kName, parameters, "token_thresholds_percent")) {
    if (tokens_.size() != thresholds_.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("rule {}: token_values ({}) and token_thresholds_percent ({}) must "
                              "have the same length",
                              kName, tokens_.size(), thresholds_.size()));
    }
  }

 protected:
  void look_at(const StepView& step, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>* findings) override {
    if (findings == nullptr || row.statistics.count == 0) return;
    std::optional<TensorValues> values;
    const bool needs_values = std::any_of(tokens_.begin(), tokens_.end(), [&](double token) {
      return token != 0.0 && row.statistics.min <= token && token <= row.statistics.max;
    });
    if (needs_values) values = values_of(worker, row);
    if (needs_values && !values) note_missing_values();
    for (std::size_t k = 0; k < tokens_.size(); ++k) {
      const std::optional<double> count = count_of(tokens_[k], row.statistics, values);
      if (!count) continue;
      const double percent = 100.0 * *count / static_cast<double>(row.statistics.count);
      if (percent <= thresholds_[k]) continue;
      Finding finding = finding_at(step, tensor_name(worker, row), worker.worker);
      finding.statistic = "token_percent";
      finding.observed = percent;
      finding.threshold = thresholds_[k];
      finding.message =
          fmt::format("{:.3g}% of {} is token {:g} at step {}, more than {:g}%.", percent,
                      finding.tensor, tokens_[k], finding.step, thresholds_[k]);
      findings->push_back(std::move(finding));
    }
  }

 private:
  static std::optional<double> count_of(double token, const Statistics& s,
                                        const std::optional<TensorValues>& values) {
    if (token == 0.0) return static_cast<double>(s.zero_count);
    if (!(s.min <= token && token <= s.max)) return 0.0;
    if (!values) return std::nullopt;
    return static_cast<double>(std::count(values->elements.begin(), values->elements.end(), token));
  }

  const std::vector<double> tokens_;
  const std::vector<double> thresholds_;
};

}  // namespace

const RuleDescriptor& nlp_sequence_ratio_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "Too large a share of padding, unknown or other special tokens.",
      .doc = kDoc,
      .family = RuleFamily::kClassic,
      .stage = Stage::kData,
      .advice = {"Padding is computed for nothing, and unknown tokens tell the model nothing.",
                 kCauses,
                 "Sort sequences into batches by length, or pack them; look at the tokenizer and "
                 "the vocabulary."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = [](const Parameters& parameters) -> std::unique_ptr<Rule> {
        return std::make_unique<NlpSequenceRatio>(parameters);
      },
  };
  return kDescriptor;
}

}  // namespace tensortap
