// Loads rules from a shared object that the user names. Loading one runs its code: never do it for
// a path that comes out of a run. Used by RuleEngine and cli/. Immutable after loading,
// thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "rules/rule.h"

namespace tensortap {

class RulePlugin {
 public:
  // Throws Error(kInvalidArgument), one line with the path last: there is no such file, it is no
  // shared object, it exports no rules, or it was built for another version.
  explicit RulePlugin(const std::string& path);

  std::span<const RuleDescriptor* const> rules() const { return rules_; }

 private:
  std::shared_ptr<void> handle_;  // keeps the object loaded
  std::span<const RuleDescriptor* const> rules_;
};

}  // namespace tensortap
