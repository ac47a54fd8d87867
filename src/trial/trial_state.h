// The inside of Trial: which tensors there are under which id in which worker, what belongs to
// which collection, and where a (tensor, step) lies. Included by trial/*.cc only. Not thread-safe.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "capture/collection.h"
#include "trial/step_index.h"
#include "trial/trial.h"

namespace tensortap {

struct Trial::State {
  static constexpr std::int64_t kNoTensor = -1;

  struct Tensor {
    std::vector<std::int64_t> ids;  // by worker; kNoTensor where the worker does not know it
    std::vector<std::string> collections;
    // Remembered answers. Presence, bit: mode number - 1; "no" holds until there is anything new.
    std::uint8_t present_modes = 0;
    std::uint8_t absent_modes = 0;
    std::uint64_t absent_at_update = 0;
    std::vector<signed char> memberships;  // by collection_slot(): -1 no, 1 yes, 0 not asked
  };
  using Tensors = std::map<std::string, Tensor, std::less<>>;

  State(std::shared_ptr<TraceSource> trace_source, const TrialOptions& options);

  // Takes in what the source has found.
  void update();

  const trial::Axis& axis(Mode mode) const { return index.axis(mode); }
  // Throws Error(kNotFound) with near names.
  const Tensor& tensor(std::string_view name) const;
  // Workers [first, last) that a question is about: "" = all.
  std::pair<std::size_t, std::size_t> worker_range(std::string_view name) const;

  // Whether the tensor has anything at a visible step of the mode.
  bool is_present(Tensor& tensor, Mode mode) const;
  bool is_member(const std::string& name, Tensor& tensor, std::string_view collection);
  // Remembers the tensors of the first and the last step of a mode: nearly all that there are, for
  // two reads. Does so when there are twice as many steps as last time.
  void mark_present(Mode mode);
  // Names with anything at a step: the index of its key on the mode's axis.
  std::vector<std::string_view> names_at(Mode mode, std::size_t index) const;
  // Ordinals at which a worker's tensor has anything visible in a mode.
  std::vector<std::uint32_t> live_ordinals(std::size_t worker, TensorId tensor, Mode mode) const;
  std::int64_t key_of(std::size_t worker, std::uint32_t ordinal, Mode mode) const {
    const StepInfo& info = sources[worker]->steps()[ordinal];
    return mode == Mode::kGlobal ? info.step : info.mode_step;
  }

  // Calls ask(worker index, id, ordinal) for the workers that know the tensor and wrote the step,
  // in order, until one gives something. Incomplete steps are as if they were not there.
  template <class Ask>
  auto first_of(const Tensor& tensor, std::int64_t step, Mode mode, std::string_view worker,
                const Ask& ask) const -> decltype(ask(std::size_t{}, TensorId{}, std::uint32_t{})) {
    const auto [first, last] = worker_range(worker);
    const trial::Axis& steps = axis(mode);
    const std::optional<std::size_t> at = steps.find(step);
    if (!at || step > steps.complete_key) return {};
    for (std::size_t w = first; w < last; ++w) {
      const std::uint32_t ordinal = steps.ordinals[w][*at];
      if (ordinal == trial::kNoOrdinal || tensor.ids[w] == kNoTensor) continue;
      if (auto found = ask(w, static_cast<TensorId>(tensor.ids[w]), ordinal)) return found;
    }
    return {};
  }

  std::shared_ptr<TraceSource> source;
  std::optional<std::int64_t> first_step;
  std::vector<const WorkerSource*> sources;  // by worker
  trial::StepIndex index;
  Tensors tensors;
  CollectionSet collections;
  BufferPool buffers{0};

 private:
  void update_tensors(bool has_new_workers);
  void update_collections();
  std::size_t collection_slot(std::string_view collection);
  bool look_for(const Tensor& tensor, Mode mode) const;

  std::uint64_t update_count_ = 0;
  std::array<std::size_t, kModeCount> marked_at_size_{};
  std::vector<std::size_t>
      known_tensors_;  // by worker: how much of its dictionary has been taken in
  std::vector<std::string> collections_json_;
  std::map<std::string, std::size_t, std::less<>> collection_slots_;
};

}  // namespace tensortap
