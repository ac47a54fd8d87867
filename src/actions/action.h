// What happens when a rule fires. One file each in actions/builtin/; CMake generates the list. An
// action throws Error when it fails, TransientError when trying again may help; ActionRunner
// catches both, tries again, and records the outcome. An action never harms the training.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "rules/finding.h"
#include "rules/parameters.h"

namespace tensortap {

class TransientError : public Error {
 public:
  explicit TransientError(const std::string& message) : Error(ErrorCode::kIo, message) {}
};

// What capture_more asks for: everything of these collections at each of the next steps.
struct DetailWish {
  std::vector<std::string> collections;  // empty: those that are being saved
  std::int64_t step_count = 0;
  bool with_raw = false;
};

// What an action may do to the process it runs in, and what it may know. Filled in by session/ (in
// the training) or by a program; a function is empty where it makes no sense.
struct ActionContext {
  std::string run;  // its URI, for messages
  std::function<void(const Finding&)> request_stop;
  std::function<void(const Finding&, const DetailWish&)> raise_detail;
  // Calls a function that the training's script registered, at the step border; whoever calls it
  // records how it went.
  std::function<void(const std::string& function, const Finding&)> call_function;
  // Set when the training ends and waits no longer: an action on the worker thread then gives up.
  const std::atomic<bool>* is_cancelled = nullptr;
};

struct ActionReply {
  std::string detail;        // "mail accepted for 2 recipients"
  bool is_deferred = false;  // the outcome is known, and recorded, later
};

class Action {
 public:
  virtual ~Action() = default;
  virtual ActionReply run(const Finding& finding, ActionContext& context) = 0;
};

struct ActionDescriptor {
  std::string_view name;  // "stop_training"
  std::string_view summary;
  std::string_view doc;
  // It may take long (the network, a program): ActionRunner's thread runs it, and tries again.
  bool is_slow = false;
  std::span<const ParameterDescriptor> parameters;  // besides common_action_parameters()
  std::unique_ptr<Action> (*create)(const Parameters& parameters);
};

}  // namespace tensortap
