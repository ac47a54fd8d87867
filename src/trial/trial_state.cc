#include "trial/trial_state.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tensortap {
namespace {

std::uint8_t mode_bit(Mode mode) {
  return static_cast<std::uint8_t>(1u << (static_cast<unsigned>(mode) - 1));
}

// What every worker exported, as one set: the first one's settings, everybody's names and patterns.
void merge_collections(CollectionSet& into, const CollectionSet& more) {
  for (const std::string& name : more.names()) {
    const Collection& other = *more.find(name);
    const bool is_new = into.find(name) == nullptr;
    Collection& merged = into.get_or_create(name);
    if (is_new) {
      merged.save_config = other.save_config;
      merged.reduction_config = other.reduction_config;
      merged.save_histogram = other.save_histogram;
    }
    for (const std::string& pattern : other.include_regex()) {
      const std::vector<std::string>& known = merged.include_regex();
      if (std::find(known.begin(), known.end(), pattern) == known.end()) merged.include(pattern);
    }
    for (const std::string& tensor : other.tensor_names()) merged.add_tensor_name(tensor);
  }
}

}  // namespace

Trial::State::State(std::shared_ptr<TraceSource> trace_source, const TrialOptions& options)
    : source(std::move(trace_source)),
      first_step(options.first_step),
      index(options.first_step, options.last_step) {}

void Trial::State::update() {
  ++update_count_;
  sources = source->workers();
  const std::uint64_t superseded_before = index.superseded_count();
  const bool has_new_workers = index.update(sources);
  if (index.superseded_count() != superseded_before) {  // some tensors may be gone
    for (auto& [name, tensor] : tensors) tensor.present_modes = 0;
    marked_at_size_.fill(0);
  }
  update_tensors(has_new_workers);
  update_collections();
}

void Trial::State::update_tensors(bool has_new_workers) {
  if (has_new_workers) {  // the places of all workers have moved
    tensors.clear();
    marked_at_size_.fill(0);
    known_tensors_.assign(sources.size(), 0);
  }
  for (std::size_t w = 0; w < sources.size(); ++w) {
    const std::vector<TensorInfo>& infos = sources[w]->dictionary().tensors;
    for (std::size_t& id = known_tensors_[w]; id < infos.size(); ++id) {
      const auto [entry, is_new] = tensors.try_emplace(infos[id].name);
      Tensor& tensor = entry->second;
      if (is_new) tensor.ids.assign(sources.size(), kNoTensor);
      tensor.ids[w] = static_cast<std::int64_t>(id);
      for (const std::string& collection : infos[id].collections) {
        std::vector<std::string>& known = tensor.collections;
        if (std::find(known.begin(), known.end(), collection) == known.end()) {
          known.push_back(collection);
          tensor.memberships.clear();
        }
      }
    }
  }
}

void Trial::State::update_collections() {
  std::vector<std::string> documents = source->collections_json();
  if (documents == collections_json_) return;
  CollectionSet merged;
  for (const std::string& document : documents) {
    try {
      merge_collections(merged, CollectionSet::from_json(document, source->uri()));
    } catch (const Error& error) {
      // Damage is reported, and does not stop queries: memberships are also kept with the tensors.
      log(LogLevel::kWarning, error.what());
    }
  }
  collections = std::move(merged);
  collections_json_ = std::move(documents);
  for (auto& [name, tensor] : tensors) tensor.memberships.clear();
}

const Trial::State::Tensor& Trial::State::tensor(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> candidates;
  for (const auto& [candidate, tensor] : tensors) candidates.push_back(candidate);
  throw Error(ErrorCode::kNotFound, "no tensor '" + std::string(name) + "' in the run" +
                                        did_you_mean(name, candidates) + ": " + source->uri());
}

std::pair<std::size_t, std::size_t> Trial::State::worker_range(std::string_view name) const {
  if (name.empty()) return {0, sources.size()};
  std::vector<std::string> names;
  for (std::size_t w = 0; w < sources.size(); ++w) {
    if (sources[w]->name() == name) return {w, w + 1};
    names.push_back(sources[w]->name());
  }
  throw Error(ErrorCode::kNotFound, "no worker '" + std::string(name) + "' in the run (it has " +
                                        join(names, ", ") + "): " + source->uri());
}

bool Trial::State::is_present(Tensor& tensor, Mode mode) const {
  const std::uint8_t bit = mode_bit(mode);
  if ((tensor.present_modes & bit) != 0) return true;
  if (tensor.absent_at_update != update_count_) {
    tensor.absent_modes = 0;
    tensor.absent_at_update = update_count_;
  }
  if ((tensor.absent_modes & bit) != 0) return false;
  const bool is_found = look_for(tensor, mode);
  (is_found ? tensor.present_modes : tensor.absent_modes) |= bit;
  return is_found;
}

bool Trial::State::look_for(const Tensor& tensor, Mode mode) const {
  for (std::size_t w = 0; w < sources.size(); ++w) {
    if (tensor.ids[w] == kNoTensor) continue;
    const auto id = static_cast<TensorId>(tensor.ids[w]);
    if (!sources[w]->is_recorded(id)) continue;
    if (mode == Mode::kGlobal && index.hides_nothing()) return true;
    if (!live_ordinals(w, id, mode).empty()) return true;
  }
  return false;
}

bool Trial::State::is_member(const std::string& name, Tensor& tensor, std::string_view collection) {
  const std::size_t slot = collection_slot(collection);
  if (tensor.memberships.size() <= slot) tensor.memberships.resize(slot + 1, 0);
  signed char& answer = tensor.memberships[slot];
  if (answer == 0) {
    const std::vector<std::string>& stored = tensor.collections;
    const Collection* described = collections.find(collection);
    const bool is_in = std::find(stored.begin(), stored.end(), collection) != stored.end() ||
                       (described != nullptr && described->matches(name));
    answer = is_in ? 1 : -1;
  }
  return answer > 0;
}

std::size_t Trial::State::collection_slot(std::string_view collection) {
  const auto known = collection_slots_.find(collection);
  if (known != collection_slots_.end()) return known->second;
  return collection_slots_.emplace(std::string(collection), collection_slots_.size()).first->second;
}

void Trial::State::mark_present(Mode mode) {
  std::size_t& marked_at_size = marked_at_size_[static_cast<std::size_t>(mode) - 1];
  if (axis(mode).keys.size() <= 2 * marked_at_size) return;
  marked_at_size = axis(mode).keys.size();
  for (std::size_t w = 0; w < sources.size(); ++w) {
    const auto [first, end] = index.ordinal_range(w, mode);
    if (first == end) continue;
    for (const std::uint32_t ordinal : {first, end - 1}) {
      const std::shared_ptr<const StepRecord> record = sources[w]->read_step(ordinal);
      if (record == nullptr) continue;
      const std::vector<TensorInfo>& infos = sources[w]->dictionary().tensors;
      for (const StatisticsRow& row : record->rows) {
        const auto found = tensors.find(infos[row.tensor].name);
        if (found != tensors.end()) found->second.present_modes |= mode_bit(mode);
      }
    }
  }
}

std::vector<std::string_view> Trial::State::names_at(Mode mode, std::size_t index_of_key) const {
  std::vector<std::string_view> names;
  for (std::size_t w = 0; w < sources.size(); ++w) {
    const std::uint32_t ordinal = axis(mode).ordinals[w][index_of_key];
    if (ordinal == trial::kNoOrdinal) continue;
    const std::vector<TensorInfo>& infos = sources[w]->dictionary().tensors;
    std::vector<bool> has_entry(infos.size(), false);
    if (const std::shared_ptr<const StepRecord> record = sources[w]->read_step(ordinal)) {
      for (const StatisticsRow& row : record->rows) has_entry[row.tensor] = true;
      for (const TextValue& text : record->texts) has_entry[text.tensor] = true;
    }
    for (std::size_t id = 0; id < infos.size(); ++id) {
      const auto tensor = static_cast<TensorId>(id);
      if (!has_entry[id] && sources[w]->is_recorded(tensor)) {  // a raw value alone, perhaps
        const std::vector<std::uint32_t> ordinals = sources[w]->tensor_ordinals(tensor);
        has_entry[id] = std::binary_search(ordinals.begin(), ordinals.end(), ordinal);
      }
      if (has_entry[id]) names.push_back(infos[id].name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::uint32_t> Trial::State::live_ordinals(std::size_t worker, TensorId tensor,
                                                       Mode mode) const {
  std::vector<std::uint32_t> ordinals = sources[worker]->tensor_ordinals(tensor);
  std::erase_if(ordinals,
                [&](std::uint32_t ordinal) { return !index.is_live(worker, ordinal, mode); });
  return ordinals;
}

}  // namespace tensortap
