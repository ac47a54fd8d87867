#include "capture/step_builder.h"

#include <utility>

namespace tensortap {
namespace {

// A histogram is four fifths of a row: it is copied only where there is one.
void assign_row(StatisticsRow& target, const StatisticsRow& row) {
  target.tensor = row.tensor;
  target.layout = row.layout;
  target.has_histogram = row.has_histogram;
  target.statistics = row.statistics;
  if (row.has_histogram) target.histogram = row.histogram;
}

}  // namespace

StepBuilder::Slot& StepBuilder::slot(TensorId tensor) {
  if (tensor >= slots_.size()) slots_.resize(tensor + std::size_t{1});
  Slot& result = slots_[tensor];
  if (result.serial != serial_) {
    result = Slot{};
    result.serial = serial_;
  }
  return result;
}

StepRecord& StepBuilder::record() {
  if (record_ == nullptr) record_ = pool_.acquire();
  return *record_;
}

void StepBuilder::put_row(const StatisticsRow& row) {
  Slot& place = slot(row.tensor);
  std::vector<StatisticsRow>& rows = record().rows;
  if (place.row == kNone) {
    rows.emplace_back();
    place.row = static_cast<std::uint32_t>(rows.size() - 1);
  }
  assign_row(rows[place.row], row);
  remove_raw(place);
}

void StepBuilder::put_raw(RawTensor raw) {
  Slot& place = slot(raw.tensor);
  std::vector<RawTensor>& raws = record().raws;
  if (place.raw == kNone) {
    raws.emplace_back();
    place.raw = static_cast<std::uint32_t>(raws.size() - 1);
  }
  raws[place.raw] = std::move(raw);
}

bool StepBuilder::put_same(TensorId tensor, TensorId source, bool with_histogram, bool with_raw) {
  if (record_ == nullptr || tensor == source) return false;
  const Slot place = slot(source);
  if (place.row == kNone) return false;
  StatisticsRow row = record_->rows[place.row];
  if (with_histogram && !row.has_histogram) return false;
  if (with_raw && place.raw == kNone) return false;
  row.tensor = tensor;
  row.has_histogram = with_histogram;
  put_row(row);
  if (with_raw) {
    RawTensor raw = record_->raws[place.raw];
    raw.tensor = tensor;
    put_raw(std::move(raw));
  }
  return true;
}

void StepBuilder::put_text(TensorId tensor, std::string_view text) {
  Slot& place = slot(tensor);
  std::vector<TextValue>& texts = record().texts;
  if (place.text == kNone) {
    texts.push_back({tensor, {}});
    place.text = static_cast<std::uint32_t>(texts.size() - 1);
  }
  texts[place.text].text = text;
}

void StepBuilder::remove_raw(Slot& place) {
  if (place.raw == kNone) return;
  std::vector<RawTensor>& raws = record_->raws;
  if (place.raw + std::size_t{1} < raws.size()) {
    raws[place.raw] = std::move(raws.back());
    slots_[raws[place.raw].tensor].raw = place.raw;
  }
  raws.pop_back();
  place.raw = kNone;
}

bool StepBuilder::has_raw(TensorId tensor) const {
  return tensor < slots_.size() && slots_[tensor].serial == serial_ && slots_[tensor].raw != kNone;
}

std::shared_ptr<StepRecord> StepBuilder::take() {
  ++serial_;
  return std::exchange(record_, nullptr);
}

}  // namespace tensortap
