// Regular expressions as users write them for Python's `re` (PCRE2 underneath: lookaheads and
// lookbehinds work), with match limits so that a hostile pattern cannot hang a training. Immutable
// after construction, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tensortap {

class Regex {
 public:
  // Throws Error(kInvalidArgument) with the pattern, the position and what is wrong there.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Unanchored, as Python's re.search. False as well when the match limit is reached.
  bool search(std::string_view text) const noexcept;
  const std::string& pattern() const { return pattern_; }

 private:
  struct Compiled;
  std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tensortap
