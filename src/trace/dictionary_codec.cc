#include "trace/dictionary_codec.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tensortap::trace {
namespace {

bool read_tensor(ByteReader& reader, TensorInfo& out) {
  std::string_view name;
  std::uint64_t collection_count = 0;
  if (!reader.get_string(name) || !reader.get_varint(collection_count)) return false;
  if (collection_count > reader.remaining()) return false;
  out.name = name;
  for (std::uint64_t i = 0; i < collection_count; ++i) {
    std::string_view collection;
    if (!reader.get_string(collection)) return false;
    out.collections.emplace_back(collection);
  }
  return true;
}

bool read_layout(ByteReader& reader, Layout& out) {
  std::uint8_t code = 0;
  std::uint64_t rank = 0;
  if (!reader.get(code) || !reader.get_varint(rank) || rank > reader.remaining()) return false;
  const std::optional<DType> dtype = dtype_from_code(code);
  if (!dtype) return false;
  out.dtype = *dtype;
  for (std::uint64_t i = 0; i < rank; ++i) {
    std::uint64_t length = 0;
    if (!reader.get_varint(length) || length > INT64_MAX) return false;
    out.shape.push_back(static_cast<std::int64_t>(length));
  }
  return true;
}

bool same(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.collections == b.collections;
}
bool same(const Layout& a, const Layout& b) { return a == b; }

// Whether items at `first` and after agree with `into` where they overlap it.
template <class Item>
bool overlap_agrees(std::span<const Item> items, std::size_t first, const std::vector<Item>& into) {
  const std::size_t last = std::min(first + items.size(), into.size());
  for (std::size_t id = first; id < last; ++id) {
    if (!same(items[id - first], into[id])) return false;
  }
  return true;
}

template <class Item>
void append_beyond(std::span<const Item> items, std::size_t first, std::vector<Item>& into) {
  for (std::size_t i = into.size() - first; i < items.size(); ++i) into.push_back(items[i]);
}

}  // namespace

void encode_dictionary(const Dictionary& dictionary, std::size_t first_tensor,
                       std::size_t first_layout, ByteBuffer& out) {
  out.put(static_cast<std::uint32_t>(first_tensor));
  out.put(static_cast<std::uint32_t>(dictionary.tensors.size() - first_tensor));
  out.put(static_cast<std::uint32_t>(first_layout));
  out.put(static_cast<std::uint32_t>(dictionary.layouts.size() - first_layout));
  for (std::size_t id = first_tensor; id < dictionary.tensors.size(); ++id) {
    const TensorInfo& tensor = dictionary.tensors[id];
    out.put_string(tensor.name);
    out.put_varint(tensor.collections.size());
    for (const std::string& collection : tensor.collections) out.put_string(collection);
  }
  for (std::size_t id = first_layout; id < dictionary.layouts.size(); ++id) {
    const Layout& layout = dictionary.layouts[id];
    out.put(static_cast<std::uint8_t>(layout.dtype));
    out.put_varint(layout.shape.size());
    for (const std::int64_t length : layout.shape) {
      out.put_varint(static_cast<std::uint64_t>(length));
    }
  }
}

DictionaryOutcome decode_dictionary(std::span<const std::byte> payload, Dictionary& into) {
  ByteReader reader(payload);
  std::uint32_t first_tensor = 0;
  std::uint32_t tensor_count = 0;
  std::uint32_t first_layout = 0;
  std::uint32_t layout_count = 0;
  if (!reader.get(first_tensor) || !reader.get(tensor_count) || !reader.get(first_layout) ||
      !reader.get(layout_count)) {
    return DictionaryOutcome::kCorrupt;
  }
  // A definition takes at least two bytes, so the counts cannot ask for more than the payload
  // holds.
  if (std::uint64_t{tensor_count} + layout_count > reader.remaining() / 2) {
    return DictionaryOutcome::kCorrupt;
  }
  if (first_tensor > into.tensors.size() || first_layout > into.layouts.size()) {
    return DictionaryOutcome::kGap;
  }
  Dictionary read;
  for (std::uint32_t i = 0; i < tensor_count; ++i) {
    if (!read_tensor(reader, read.tensors.emplace_back())) return DictionaryOutcome::kCorrupt;
  }
  for (std::uint32_t i = 0; i < layout_count; ++i) {
    if (!read_layout(reader, read.layouts.emplace_back())) return DictionaryOutcome::kCorrupt;
  }
  const std::span<const TensorInfo> tensors = read.tensors;
  const std::span<const Layout> layouts = read.layouts;
  if (!overlap_agrees(tensors, first_tensor, into.tensors) ||
      !overlap_agrees(layouts, first_layout, into.layouts)) {
    return DictionaryOutcome::kConflict;
  }
  append_beyond(tensors, first_tensor, into.tensors);
  append_beyond(layouts, first_layout, into.layouts);
  return DictionaryOutcome::kOk;
}

bool merge_dictionary(const Dictionary& other, Dictionary& into) {
  const std::span<const TensorInfo> tensors = other.tensors;
  const std::span<const Layout> layouts = other.layouts;
  if (!overlap_agrees(tensors, 0, into.tensors) || !overlap_agrees(layouts, 0, into.layouts)) {
    return false;
  }
  append_beyond(tensors, 0, into.tensors);
  append_beyond(layouts, 0, into.layouts);
  return true;
}

}  // namespace tensortap::trace
