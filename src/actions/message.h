// A finding as people are told of it by mail and chat, and as programs get it. Pure functions,
// thread-safe. Names in a run are not to be trusted: nothing here passes control characters on.
#pragma once

#include <string>
#include <string_view>

#include "rules/finding.h"

namespace tensortap {

// Control characters become blanks: one line, whatever a tensor is called.
std::string one_line(std::string_view text_untrusted);
// "Tensortap: VanishingGradient at step 120"
std::string finding_headline(const Finding& finding);
// The sentence, then what was observed where, a line each; the run last.
std::string finding_text(const Finding& finding, std::string_view run);
// {"run": …, "finding": {…}}
std::string finding_document(const Finding& finding, std::string_view run);

}  // namespace tensortap
