// Which tensors a rule looks at, by collection and regex. Used by rules/builtin. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "rules/rule.h"

namespace tensortap {

// The union of what it is given; both empty: all tensors. Measurements of the machine (collections
// `system` and `timings`) only when they are asked for. Remembers the answer for each worker's
// tensor id, so that asking is one lookup.
class TensorSelector {
 public:
  // Throws Error(kInvalidArgument) when a regex does not compile.
  TensorSelector(std::vector<std::string> collections, std::vector<std::string> regexes);
  bool selects(const WorkerStep& worker, TensorId tensor) {
    if (worker.worker_index < known_.size()) {
      const std::vector<signed char>& known = known_[worker.worker_index];
      if (tensor < known.size() && known[tensor] != 0) return known[tensor] > 0;
    }
    return ask(worker, tensor);
  }
  std::uint64_t matched_tensors() const { return matched_.size(); }
  // "collection gradients", for the message that nothing matched.
  std::string description() const;
  const std::vector<std::string>& collections() const { return collections_; }

 private:
  bool ask(const WorkerStep& worker, TensorId tensor);
  bool decide(const TensorInfo& info) const;
  std::vector<std::string> collections_;
  std::vector<Regex> regexes_;
  std::vector<std::vector<signed char>>
      known_;  // [worker_index][tensor]: -1 no, 1 yes, 0 not asked
  std::map<std::string, int, std::less<>> matched_;
};

}  // namespace tensortap
