// RepeatedBatches: the same batch again, in time or on two workers.
#include <array>
#include <bit>
#include <unordered_map>

#include <fmt/core.h>

#include "rules/registry.h"
#include "rules/scalar_rule.h"
#include "rules/series.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "RepeatedBatches";
constexpr std::string_view kCollection = "model_inputs";

constexpr std::string_view kDoc =
    R"(Knows a batch by the exact bits of the statistics of the model's inputs (collection
`model_inputs`), all inputs of a step together. Fires when

- two workers see the same batch at one step (critical), unless `shared_on_workers` says that this
  is meant;
- with `steps_per_epoch`, a batch comes twice within an epoch (warning; critical when more than 1
  % of at least 100 batches were seen before), or the first `order_length` batches of an epoch are
  those of the epoch before;
- without it, `order_length` batches in a row come in the order in which they came before: the
  data are not shuffled, or the sampler's seed is not advanced. One and the same batch at every
  step is an info: training on all data at once is done on purpose.

Training steps only. A batch of one sample comes again in every epoch, but in another order. It
sees the order of neighbouring saved steps, so save every step.

Source: equal random streams in data workers (pytorch #5059), samplers that are not reshuffled or
sharded (pytorch #3880, #11324, #31771; fairseq #1383; lightning #20412); repeated n-grams trigger
loss spikes (OLMo 2, arXiv 2501.00656). Statistics instead of hashes of sample ids are ours: they
are there anyway.)";

constexpr std::array<ParameterDescriptor, 4> kParameters = {{
    {"collection_names", ParameterType::kList, kCollection, "Collections of a batch's tensors."},
    {"steps_per_epoch", ParameterType::kInt, "0", "Batches of an epoch; 0: unknown.", 0},
    {"order_length", ParameterType::kInt, "20", "Batches in the same order as before that fire.",
     2},
    {"shared_on_workers", ParameterType::kBool, "false",
     "Workers are meant to see the same batches, as in tensor parallelism."},
}};

constexpr std::array<std::string_view, 1> kCollections = {kCollection};

constexpr std::array<std::string_view, 4> kCauses = {
    "DistributedSampler without set_epoch, or no sampler that splits the data by rank",
    "a loader without shuffle=True",
    "NumPy's random state copied into every data worker",
    "an iterator that is made anew at every step, so that the first batch comes again",
};

constexpr std::uint64_t kFewBatches = 100;
constexpr std::size_t kMaxRemembered = 1u << 20;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

std::uint64_t fingerprint(std::uint64_t hash, const Statistics& s) {
  for (const std::uint64_t count : {s.count, s.nan_count, s.zero_count}) hash = mix(hash, count);
  for (const double value : {s.min, s.max, s.mean, s.variance, s.abs_mean, s.abs_variance}) {
    hash = mix(hash, std::bit_cast<std::uint64_t>(value));
  }
  return hash;
}

class RepeatedBatches : public TensorRule {
 public:
  explicit RepeatedBatches(const Parameters& parameters)
      : TensorRule({.collections = parameters.get_list("collection_names")}),
        steps_per_epoch_(parameters.get_int("steps_per_epoch")),
        order_length_(parameters.get_int("order_length")),
        is_shared_(parameters.get_bool("shared_on_workers")) {}

 protected:
  void begin(const StepView&) override { batches_.clear(); }

  void look_at(const StepView&, const WorkerStep& worker, const StatisticsRow& row,
               std::vector<Finding>*) override {
    if (batches_.empty() || batches_.back().worker != &worker) batches_.push_back({&worker, 0});
    batches_.back().hash = fingerprint(batches_.back().hash, row.statistics);
  }

  void end(const StepView& step, std::vector<Finding>* findings) override {
    if (!is_shared_) compare_workers(step, findings);
    for (const Batch& batch : batches_) {
      History& history = histories_.at(*batch.worker, 0, step.mode);
      steps_per_epoch_ > 0 ? judge_epoch(step, batch, history, findings)
                           : judge_order(step, batch, history, findings);
    }
  }

 private:
  struct Batch {
    const WorkerStep* worker;
    std::uint64_t hash;
  };
  struct History {
    std::unordered_map<std::uint64_t, std::int64_t> seen;  // batch -> where it came last
    std::vector<std::uint64_t> start;                      // the first batches of this epoch
    std::vector<std::uint64_t> last_start;                 // and of the one before
    std::int64_t epoch = -1;
    std::int64_t position = 0;
    std::int64_t lag = 0;  // how many batches before the newest ones came
    std::uint64_t repeated = 0;
    Persistence order;
    Persistence is_often;
  };

  static Finding& add(const StepView& step, const Batch& batch, Severity severity,
                      std::string message, std::vector<Finding>* findings) {
    Finding& finding = findings->emplace_back(finding_at(step, "", batch.worker->worker));
    finding.statistic = "fingerprint";
    finding.severity = severity;
    finding.message = std::move(message);
    return finding;
  }

  void compare_workers(const StepView& step, std::vector<Finding>* findings) {
    const Batch* first = nullptr;
    const Batch* second = nullptr;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      for (std::size_t j = 0; j < i && second == nullptr; ++j) {
        if (batches_[i].hash != batches_[j].hash) continue;
        first = &batches_[j];
        second = &batches_[i];
      }
    }
    if (!equal_workers_.tell(second != nullptr, 1, findings != nullptr)) return;
    add(step, *second, Severity::kCritical,
        fmt::format("{} and {} see the same batch at step {}.", first->worker->worker,
                    second->worker->worker, step.step),
        findings);
  }

  void judge_epoch(const StepView& step, const Batch& batch, History& history,
                   std::vector<Finding>* findings) const {
    const std::int64_t epoch = step.mode_step / steps_per_epoch_;
    if (epoch != history.epoch) {
      history.last_start =
          epoch == history.epoch + 1 ? std::move(history.start) : std::vector<std::uint64_t>();
      history.start.clear();
      history.seen.clear();
      history.repeated = 0;
      history.epoch = epoch;
    }
    if (std::ssize(history.start) < order_length_) {
      history.start.push_back(batch.hash);
      const bool is_same =
          std::ssize(history.start) == order_length_ && history.start == history.last_start;
      if (is_same && findings != nullptr) {
        add(step, batch, Severity::kWarning,
            fmt::format("Epoch {} begins with the same {} batches as the epoch before: the "
                        "shuffling is not advanced.",
                        epoch, order_length_),
            findings);
      }
    }
    const auto [at, is_new] = history.seen.try_emplace(batch.hash, step.step);
    if (!is_new) ++history.repeated;
    const std::uint64_t count = history.seen.size() + history.repeated;
    const bool is_often = count >= kFewBatches && 100 * history.repeated > count;
    const bool alarms = history.is_often.tell(is_often, 1, findings != nullptr);
    const bool is_first = !is_new && history.repeated == 1;
    if ((!is_first && !alarms) || findings == nullptr) return;
    Finding& finding = add(step, batch, alarms ? Severity::kCritical : Severity::kWarning,
                           fmt::format("The batch of step {} was seen before, at step {} of the "
                                       "same epoch; so far {} of {} batches were repeated.",
                                       step.step, at->second, history.repeated, count),
                           findings);
    finding.statistic = "repeated_share";
    finding.observed = static_cast<double>(history.repeated) / static_cast<double>(count);
    finding.threshold = 0.01;
  }

  void judge_order(const StepView& step, const Batch& batch, History& history,
                   std::vector<Finding>* findings) const {
    if (history.seen.size() >= kMaxRemembered) history.seen.clear();
    const std::int64_t position = history.position++;
    const auto [at, is_new] = history.seen.try_emplace(batch.hash, position);
    const std::int64_t lag = is_new ? 0 : position - at->second;
    at->second = position;
    if (lag != history.lag) history.order = Persistence();  // another order begins
    history.lag = lag;
    if (!history.order.tell(lag > 0, order_length_, findings != nullptr)) return;
    if (lag == 1) {
      add(step, batch, Severity::kInfo,
          fmt::format("The last {} steps up to step {} saw one and the same batch.",
                      order_length_ + 1, step.step),
          findings);
      return;
    }
    Finding& finding = add(step, batch, Severity::kWarning,
                           fmt::format("The last {} batches up to step {} came in the same order "
                                       "as {} saved steps before: the data are not shuffled anew.",
                                       order_length_, step.step, lag),
                           findings);
    finding.statistic = "period";
    finding.observed = static_cast<double>(lag);
  }

  const std::int64_t steps_per_epoch_;
  const std::int64_t order_length_;
  const bool is_shared_;
  std::vector<Batch> batches_;
  Persistence equal_workers_;
  PerSeries<History> histories_;
};

}  // namespace

const RuleDescriptor& repeated_batches_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "The same batch again, in time or on two workers.",
      .doc = kDoc,
      .family = RuleFamily::kModern,
      .stage = Stage::kData,
      .advice = {"Repeated batches waste compute, and what is seen often is learnt by heart; the "
                 "loss looks fine meanwhile.",
                 kCauses,
                 "Log the sample ids of a few batches on every worker and over two epochs; call "
                 "set_epoch, and seed each data worker by itself."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<RepeatedBatches>,
  };
  return kDescriptor;
}

}  // namespace tensortap
