// Names and layouts of one worker and the ids they have: what turns strings into the dense numbers
// that the rest of capture/ and the trace work with. Used by Recorder. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/step_record.h"

namespace tensortap {

class TensorTable {
 public:
  // Goes on after what earlier sessions of the run defined.
  explicit TensorTable(Dictionary dictionary);

  std::optional<TensorId> find(std::string_view name) const;
  // The name must be new.
  TensorId add(std::string_view name, std::vector<std::string> collections);
  // `tensor` only makes it fast: tensors mostly keep their layout.
  LayoutId intern_layout(TensorId tensor, DType dtype, std::span<const std::int64_t> shape);

  const Dictionary& dictionary() const { return dictionary_; }
  std::size_t size() const { return dictionary_.tensors.size(); }

  // Copies the definitions that no record has carried yet into this one.
  void give_new_definitions(StepRecord& record);
  // What the trace says of a tensor is what was known when its first record was handed over: later
  // corrections are ignored.
  void correct_collections(TensorId tensor, std::vector<std::string> collections);

 private:
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };

  Dictionary dictionary_;
  std::unordered_map<std::string, TensorId, NameHash, std::equal_to<>> ids_;
  std::unordered_multimap<std::size_t, LayoutId> layouts_by_hash_;
  std::vector<LayoutId> last_layouts_;  // by tensor; kNoLayout when it had none
  std::size_t given_tensors_;
  std::size_t given_layouts_;
};

}  // namespace tensortap
