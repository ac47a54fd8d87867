#include "capture/tensor_table.h"

#include <algorithm>
#include <utility>

namespace tensortap {
namespace {

constexpr LayoutId kNoLayout = UINT32_MAX;

std::size_t layout_hash(DType dtype, std::span<const std::int64_t> shape) {
  // FNV-1a over whole numbers: layouts are few and short.
  std::uint64_t hash = 0xcbf29ce484222325u ^ static_cast<std::uint64_t>(dtype);
  for (const std::int64_t extent : shape) {
    hash = (hash * 0x100000001b3u) ^ static_cast<std::uint64_t>(extent);
  }
  return static_cast<std::size_t>(hash);
}

bool is_same(const Layout& layout, DType dtype, std::span<const std::int64_t> shape) {
  return layout.dtype == dtype && std::ranges::equal(layout.shape, shape);
}

}  // namespace

TensorTable::TensorTable(Dictionary dictionary)
    : dictionary_(std::move(dictionary)),
      last_layouts_(dictionary_.tensors.size(), kNoLayout),
      given_tensors_(dictionary_.tensors.size()),
      given_layouts_(dictionary_.layouts.size()) {
  for (std::size_t i = 0; i < dictionary_.tensors.size(); ++i) {
    ids_.emplace(dictionary_.tensors[i].name, static_cast<TensorId>(i));
  }
  for (std::size_t i = 0; i < dictionary_.layouts.size(); ++i) {
    const Layout& layout = dictionary_.layouts[i];
    layouts_by_hash_.emplace(layout_hash(layout.dtype, layout.shape), static_cast<LayoutId>(i));
  }
}

std::optional<TensorId> TensorTable::find(std::string_view name) const {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

TensorId TensorTable::add(std::string_view name, std::vector<std::string> collections) {
  const auto id = static_cast<TensorId>(dictionary_.tensors.size());
  last_layouts_.push_back(kNoLayout);
  dictionary_.tensors.push_back({std::string(name), std::move(collections)});
  ids_.emplace(std::string(name), id);
  return id;
}

LayoutId TensorTable::intern_layout(TensorId tensor, DType dtype,
                                    std::span<const std::int64_t> shape) {
  LayoutId& last = last_layouts_[tensor];
  if (last != kNoLayout && is_same(dictionary_.layouts[last], dtype, shape)) return last;

  const std::size_t hash = layout_hash(dtype, shape);
  const auto [first, end] = layouts_by_hash_.equal_range(hash);
  for (auto entry = first; entry != end; ++entry) {
    if (is_same(dictionary_.layouts[entry->second], dtype, shape)) return last = entry->second;
  }
  const auto id = static_cast<LayoutId>(dictionary_.layouts.size());
  dictionary_.layouts.push_back({dtype, {shape.begin(), shape.end()}});
  layouts_by_hash_.emplace(hash, id);
  return last = id;
}

void TensorTable::give_new_definitions(StepRecord& record) {
  const auto copy_from = [](const auto& all, std::size_t given, auto& out) {
    out.assign(all.begin() + static_cast<std::ptrdiff_t>(given), all.end());
  };
  copy_from(dictionary_.tensors, given_tensors_, record.new_tensors);
  copy_from(dictionary_.layouts, given_layouts_, record.new_layouts);
  // Only now: when memory ran out above, the next record carries them.
  given_tensors_ = dictionary_.tensors.size();
  given_layouts_ = dictionary_.layouts.size();
}

void TensorTable::correct_collections(TensorId tensor, std::vector<std::string> collections) {
  if (tensor >= given_tensors_) dictionary_.tensors[tensor].collections = std::move(collections);
}

}  // namespace tensortap
