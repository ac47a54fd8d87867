#include "rules/tensor_selector.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tensortap {
namespace {

// Collections of measurements of the machine and its times: no tensors of the model, and zero or
// constant without anything being wrong.
constexpr std::array<std::string_view, 2> kMeasured = {"system", "timings"};

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TensorSelector::TensorSelector(std::vector<std::string> collections,
                               std::vector<std::string> regexes)
    : collections_(std::move(collections)) {
  for (const std::string& pattern : regexes) regexes_.emplace_back(pattern);
}

bool TensorSelector::ask(const WorkerStep& worker, TensorId tensor) {
  if (known_.size() <= worker.worker_index) known_.resize(worker.worker_index + 1);
  std::vector<signed char>& known = known_[worker.worker_index];
  const std::vector<TensorInfo>& infos = worker.dictionary->tensors;
  if (tensor >= infos.size()) return false;
  if (known.size() < infos.size()) known.resize(infos.size(), 0);
  const bool is_selected = decide(infos[tensor]);
  known[tensor] = is_selected ? 1 : -1;
  if (is_selected) ++matched_[infos[tensor].name];
  return is_selected;
}

bool TensorSelector::decide(const TensorInfo& info) const {
  const bool is_measured =
      std::any_of(kMeasured.begin(), kMeasured.end(), [&](std::string_view measured) {
        return has(info.collections, measured) && !has(collections_, measured);
      });
  if (collections_.empty() && regexes_.empty()) return !is_measured;
  const bool is_in = !is_measured && std::any_of(collections_.begin(), collections_.end(),
                                                 [&](const std::string& wanted) {
                                                   return has(info.collections, wanted);
                                                 });
  return is_in || std::any_of(regexes_.begin(), regexes_.end(),
                              [&](const Regex& regex) { return regex.search(info.name); });
}

std::string TensorSelector::description() const {
  if (collections_.empty() && regexes_.empty()) return "any tensor";
  std::string text;
  if (!collections_.empty()) {
    text = (collections_.size() == 1 ? "collection " : "collections ") + join(collections_, ", ");
  }
  if (regexes_.empty()) return text;
  std::vector<std::string> patterns;
  for (const Regex& regex : regexes_) patterns.push_back("'" + regex.pattern() + "'");
  if (!text.empty()) text += " or ";
  return text + (patterns.size() == 1 ? "regex " : "regexes ") + join(patterns, ", ");
}

}  // namespace tensortap
