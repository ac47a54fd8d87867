#include "trial/live_source.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <utility>

#include "base/log.h"

namespace tensortap {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A one-element row without its redundancy: 24 bytes instead of some 650.
struct ScalarRow {
  enum Flags : std::uint8_t {
    kNan = 1,
    kPositiveInf = 2,
    kNegativeInf = 4,
    kZero = 8,
    kSubnormal = 16,
    kOverflow = 32,
    kUnderflow = 64,
  };

  double value = 0.0;
  double abs_value = 0.0;
  std::uint32_t ordinal = 0;
  LayoutId layout : 24 = 0;
  std::uint32_t flags : 8 = 0;
};
constexpr LayoutId kMaxScalarLayout = (1u << 24) - 1;

ScalarRow pack(const StatisticsRow& row, std::uint32_t ordinal) {
  const Statistics& s = row.statistics;
  ScalarRow packed;
  packed.value = s.mean;
  packed.abs_value = s.abs_mean;
  packed.ordinal = ordinal;
  packed.layout = row.layout & kMaxScalarLayout;
  packed.flags =
      static_cast<std::uint8_t>((s.nan_count != 0 ? ScalarRow::kNan : 0) |
                                (s.positive_inf_count != 0 ? ScalarRow::kPositiveInf : 0) |
                                (s.negative_inf_count != 0 ? ScalarRow::kNegativeInf : 0) |
                                (s.zero_count != 0 ? ScalarRow::kZero : 0) |
                                (s.subnormal_count != 0 ? ScalarRow::kSubnormal : 0) |
                                (s.overflow_count != 0 ? ScalarRow::kOverflow : 0) |
                                (s.underflow_count != 0 ? ScalarRow::kUnderflow : 0));
  return packed;
}

StatisticsRow unpack(const ScalarRow& packed, TensorId tensor) {
  const auto flag = [&](ScalarRow::Flags bit) { return (packed.flags & bit) != 0 ? 1u : 0u; };
  StatisticsRow row;
  row.tensor = tensor;
  row.layout = packed.layout;
  Statistics& s = row.statistics;
  s.count = 1;
  s.nan_count = flag(ScalarRow::kNan);
  s.positive_inf_count = flag(ScalarRow::kPositiveInf);
  s.negative_inf_count = flag(ScalarRow::kNegativeInf);
  s.zero_count = flag(ScalarRow::kZero);
  s.subnormal_count = flag(ScalarRow::kSubnormal);
  s.overflow_count = flag(ScalarRow::kOverflow);
  s.underflow_count = flag(ScalarRow::kUnderflow);
  s.min = s.max = s.mean = packed.value;
  s.abs_min = s.abs_mean = packed.abs_value;
  const double variance = s.finite_count() == 0 ? kNaN : 0.0;
  s.variance = s.abs_variance = variance;
  return row;
}

struct KeptText {
  std::uint32_t ordinal = 0;
  std::string text;
};

// What stays of a tensor for the whole run.
struct Kept {
  bool is_recorded = false;
  std::vector<ScalarRow> scalars;  // by ascending ordinal
  std::vector<KeptText> texts;     // by ascending ordinal
};

template <class Entry>
const Entry* find_ordinal(const std::vector<Entry>& entries, std::uint32_t ordinal) {
  const auto at = std::lower_bound(
      entries.begin(), entries.end(), ordinal,
      [](const Entry& entry, std::uint32_t wanted) { return entry.ordinal < wanted; });
  return at != entries.end() && at->ordinal == ordinal ? &*at : nullptr;
}

// The order of rows hardly changes from step to step: the place where the tensor was last time is
// tried first.
template <class Entry>
const Entry* find_tensor(const std::vector<Entry>& entries, TensorId tensor, std::size_t& hint) {
  if (hint < entries.size() && entries[hint].tensor == tensor) return &entries[hint];
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].tensor != tensor) continue;
    hint = i;
    return &entries[i];
  }
  return nullptr;
}

}  // namespace

class LiveSource::Worker : public WorkerSource {
 public:
  Worker(std::string name, std::size_t budget_bytes)
      : name_(std::move(name)), budget_bytes_(budget_bytes) {}

  void add(const std::shared_ptr<const StepRecord>& step, const Dictionary& dictionary);
  void mark_ended() { has_ended_ = true; }

  const std::string& name() const override { return name_; }
  bool has_ended() const override { return has_ended_; }
  const Dictionary& dictionary() const override { return dictionary_; }
  std::span<const StepInfo> steps() const override { return steps_; }
  std::vector<std::uint32_t> tensor_ordinals(TensorId tensor) const override;
  bool is_recorded(TensorId tensor) const override {
    return tensor < kept_.size() && kept_[tensor].is_recorded;
  }
  void read_column(TensorId tensor, StatisticId statistic, std::uint32_t first, std::uint32_t last,
                   SourceColumn& out) const override;
  std::optional<StatisticsRow> read_row(TensorId tensor, std::uint32_t ordinal) const override;
  std::optional<RawTensor> read_raw(TensorId tensor, std::uint32_t ordinal) const override;
  std::optional<std::string> read_text(TensorId tensor, std::uint32_t ordinal) const override;
  std::shared_ptr<const StepRecord> read_step(std::uint32_t ordinal) const override;

 private:
  struct WindowEntry {
    std::shared_ptr<const StepRecord> record;
    std::size_t size_bytes = 0;
  };

  void keep_small(const StepRecord& step, std::uint32_t ordinal);
  void evict();
  std::uint32_t first_in_window() const {
    return static_cast<std::uint32_t>(steps_.size() - window_.size());
  }
  // Null when the step was dropped or never was.
  const StepRecord* in_window(std::uint32_t ordinal) const {
    if (ordinal < first_in_window() || ordinal >= steps_.size()) return nullptr;
    return window_[ordinal - first_in_window()].record.get();
  }

  const std::string name_;
  const std::size_t budget_bytes_;
  bool has_ended_ = false;
  Dictionary dictionary_;
  std::vector<StepInfo> steps_;
  std::deque<WindowEntry> window_;  // the newest steps
  std::size_t window_size_bytes_ = 0;
  std::vector<Kept> kept_;  // by tensor
};

void LiveSource::Worker::add(const std::shared_ptr<const StepRecord>& step,
                             const Dictionary& dictionary) {
  dictionary_.tensors.insert(
      dictionary_.tensors.end(),
      dictionary.tensors.begin() + static_cast<std::ptrdiff_t>(dictionary_.tensors.size()),
      dictionary.tensors.end());
  dictionary_.layouts.insert(
      dictionary_.layouts.end(),
      dictionary.layouts.begin() + static_cast<std::ptrdiff_t>(dictionary_.layouts.size()),
      dictionary.layouts.end());
  kept_.resize(dictionary_.tensors.size());
  const auto ordinal = static_cast<std::uint32_t>(steps_.size());
  const std::size_t size_bytes = step->size_bytes();
  // Nothing below may fail half-way: the window is the tail of steps_.
  if (steps_.size() == steps_.capacity()) steps_.reserve(2 * steps_.capacity() + 64);
  window_.push_back({step, size_bytes});
  window_size_bytes_ += size_bytes;
  steps_.push_back(step->info);
  keep_small(*step, ordinal);
  evict();
}

void LiveSource::Worker::keep_small(const StepRecord& step, std::uint32_t ordinal) {
  for (const StatisticsRow& row : step.rows) {
    Kept& kept = kept_[row.tensor];
    kept.is_recorded = true;
    if (row.statistics.count == 1 && row.layout <= kMaxScalarLayout) {
      kept.scalars.push_back(pack(row, ordinal));
    }
  }
  for (const RawTensor& raw : step.raws) kept_[raw.tensor].is_recorded = true;
  for (const TextValue& text : step.texts) {
    kept_[text.tensor].is_recorded = true;
    kept_[text.tensor].texts.push_back({ordinal, text.text});
  }
}

void LiveSource::Worker::evict() {
  while (window_.size() > 1 && window_size_bytes_ > budget_bytes_) {
    window_size_bytes_ -= window_.front().size_bytes;
    window_.pop_front();
  }
}

std::vector<std::uint32_t> LiveSource::Worker::tensor_ordinals(TensorId tensor) const {
  std::vector<std::uint32_t> ordinals;
  if (!is_recorded(tensor)) return ordinals;
  const Kept& kept = kept_[tensor];
  for (const ScalarRow& scalar : kept.scalars) ordinals.push_back(scalar.ordinal);
  for (const KeptText& text : kept.texts) ordinals.push_back(text.ordinal);
  std::size_t row_hint = 0;
  std::size_t raw_hint = 0;
  for (std::uint32_t ordinal = first_in_window(); ordinal < steps_.size(); ++ordinal) {
    const StepRecord& record = *in_window(ordinal);
    if (find_tensor(record.rows, tensor, row_hint) != nullptr ||
        find_tensor(record.raws, tensor, raw_hint) != nullptr) {
      ordinals.push_back(ordinal);
    }
  }
  std::sort(ordinals.begin(), ordinals.end());
  ordinals.erase(std::unique(ordinals.begin(), ordinals.end()), ordinals.end());
  return ordinals;
}

void LiveSource::Worker::read_column(TensorId tensor, StatisticId statistic, std::uint32_t first,
                                     std::uint32_t last, SourceColumn& out) const {
  if (!is_recorded(tensor)) return;
  last = std::min(last, static_cast<std::uint32_t>(steps_.size()));
  const std::uint32_t window_first = std::max(first, first_in_window());
  for (const ScalarRow& scalar : kept_[tensor].scalars) {
    if (scalar.ordinal < first) continue;
    if (scalar.ordinal >= std::min(window_first, last)) break;
    out.ordinals.push_back(scalar.ordinal);
    out.values.push_back(statistic_value(unpack(scalar, tensor).statistics, statistic));
  }
  std::size_t hint = 0;
  for (std::uint32_t ordinal = window_first; ordinal < last; ++ordinal) {
    const StatisticsRow* row = find_tensor(in_window(ordinal)->rows, tensor, hint);
    if (row == nullptr) continue;
    out.ordinals.push_back(ordinal);
    out.values.push_back(statistic_value(row->statistics, statistic));
  }
}

std::optional<StatisticsRow> LiveSource::Worker::read_row(TensorId tensor,
                                                          std::uint32_t ordinal) const {
  if (!is_recorded(tensor)) return std::nullopt;
  if (const StepRecord* record = in_window(ordinal)) {
    std::size_t hint = 0;
    const StatisticsRow* row = find_tensor(record->rows, tensor, hint);
    return row != nullptr ? std::optional(*row) : std::nullopt;
  }
  const ScalarRow* scalar = find_ordinal(kept_[tensor].scalars, ordinal);
  return scalar != nullptr ? std::optional(unpack(*scalar, tensor)) : std::nullopt;
}

std::optional<RawTensor> LiveSource::Worker::read_raw(TensorId tensor,
                                                      std::uint32_t ordinal) const {
  const StepRecord* record = in_window(ordinal);
  if (record == nullptr) return std::nullopt;
  std::size_t hint = 0;
  const RawTensor* raw = find_tensor(record->raws, tensor, hint);
  return raw != nullptr ? std::optional(*raw) : std::nullopt;
}

std::optional<std::string> LiveSource::Worker::read_text(TensorId tensor,
                                                         std::uint32_t ordinal) const {
  if (!is_recorded(tensor)) return std::nullopt;
  const KeptText* text = find_ordinal(kept_[tensor].texts, ordinal);
  return text != nullptr ? std::optional(text->text) : std::nullopt;
}

std::shared_ptr<const StepRecord> LiveSource::Worker::read_step(std::uint32_t ordinal) const {
  if (ordinal >= steps_.size()) return nullptr;
  if (in_window(ordinal) != nullptr) return window_[ordinal - first_in_window()].record;
  auto record = std::make_shared<StepRecord>();
  record->info = steps_[ordinal];
  for (TensorId tensor = 0; tensor < kept_.size(); ++tensor) {
    const Kept& kept = kept_[tensor];
    if (const ScalarRow* scalar = find_ordinal(kept.scalars, ordinal)) {
      record->rows.push_back(unpack(*scalar, tensor));
    }
    if (const KeptText* text = find_ordinal(kept.texts, ordinal)) {
      record->texts.push_back({tensor, text->text});
    }
  }
  return record;
}

LiveSource::LiveSource(std::string uri, std::string worker, std::size_t budget_bytes)
    : worker_(std::make_unique<Worker>(std::move(worker), budget_bytes)), uri_(std::move(uri)) {}

LiveSource::~LiveSource() = default;

void LiveSource::on_step(const std::shared_ptr<const StepRecord>& step,
                         const Dictionary& dictionary) noexcept {
  try {
    worker_->add(step, dictionary);
    changed_ = true;
  } catch (const std::exception&) {
    log(LogLevel::kWarning, "a step is missing from the live trial: out of memory");
  }
}

void LiveSource::mark_ended() {
  worker_->mark_ended();
  changed_ = true;
}

void LiveSource::set_collections_json(std::string json) {
  changed_ = changed_ || json != collections_json_;
  collections_json_ = std::move(json);
}

const std::string& LiveSource::uri() const { return uri_; }
bool LiveSource::refresh() { return std::exchange(changed_, false); }
std::vector<const WorkerSource*> LiveSource::workers() const { return {worker_.get()}; }
std::string LiveSource::run_json() const { return ""; }

std::vector<std::string> LiveSource::collections_json() const {
  if (collections_json_.empty()) return {};
  return {collections_json_};
}

std::vector<SourceProblem> LiveSource::problems() const { return {}; }

}  // namespace tensortap
