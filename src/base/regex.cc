#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <cstdint>
#include <vector>

#include <fmt/core.h>
#include <pcre2.h>

#include "base/error.h"

namespace tensortap {
namespace {

// Ample for a name against a sane pattern, and milliseconds for a hostile one.
constexpr std::uint32_t kMatchLimit = 200'000;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 16 * 1024;
constexpr std::size_t kMaxPatternBytes = 65'536;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;
using CompileContext = std::unique_ptr<pcre2_compile_context, CompileContextDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;

PCRE2_SPTR as_code_units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());  // unsigned char on the same bytes
}

// A pattern in PCRE2's spelling, with the place in the original of every byte.
struct Translated {
  std::string text;
  std::vector<std::size_t> origins;

  void add(std::string_view piece, std::size_t origin) {
    text += piece;
    origins.insert(origins.end(), piece.size(), origin);
  }
};

bool are_hex_digits(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// Translates the escape at `at`; gives how many bytes of the pattern it took.
std::size_t translate_escape(std::string_view pattern, std::size_t at, bool in_class,
                             Translated& out) {
  const std::string_view rest = pattern.substr(at);
  if (rest.size() < 2) {
    out.add(rest, at);
    return rest.size();
  }
  if (rest[1] == 'Z' && !in_class) {
    out.add("\\z", at);
    return 2;
  }
  const std::size_t digits = rest[1] == 'u' ? 4 : rest[1] == 'U' ? 8 : 0;
  if (digits != 0 && rest.size() >= 2 + digits && are_hex_digits(rest.substr(2, digits))) {
    out.add(fmt::format("\\x{{{}}}", rest.substr(2, digits)), at);
    return 2 + digits;
  }
  out.add(rest.substr(0, 2), at);
  return 2;
}

// Python and PCRE2 agree but for three spellings: `\Z` (the very end), `{,n}` (from none to n) and
// `\uXXXX`, `\UXXXXXXXX`.
Translated translate_from_python(std::string_view pattern) {
  Translated out;
  bool in_class = false;
  std::size_t class_start = 0;
  for (std::size_t i = 0; i < pattern.size();) {
    const char c = pattern[i];
    if (c == '\\') {
      i += translate_escape(pattern, i, in_class, out);
      continue;
    }
    if (!in_class && c == '{' && i + 2 < pattern.size() && pattern[i + 1] == ',' &&
        pattern[i + 2] >= '0' && pattern[i + 2] <= '9') {
      out.add("{0", i++);
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_start = i + 1;
      if (class_start < pattern.size() && pattern[class_start] == '^') ++class_start;
    } else if (in_class && c == ']' && i > class_start) {  // a "]" that comes first is a member
      in_class = false;
    }
    out.add(pattern.substr(i, 1), i);
    ++i;
  }
  return out;
}

[[noreturn]] void throw_compile_error(std::string_view pattern, std::size_t position, int code) {
  std::array<PCRE2_UCHAR, 256> message{};
  pcre2_get_error_message(code, message.data(), message.size());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("not a regular expression: {} at position {}: '{}'",
                          reinterpret_cast<const char*>(message.data()), position, pattern));
}

Code compile(std::string_view pattern) {
  const Translated translated = translate_from_python(pattern);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw Error(ErrorCode::kInternal, "out of memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  // Names are UTF-8 as a rule, but any bytes must be matched without an error.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  Code code(pcre2_compile(as_code_units(translated.text), translated.text.size(), kOptions,
                          &error_code, &error_offset, context.get()));
  if (!code) {
    const std::size_t position = error_offset < translated.origins.size()
                                     ? translated.origins[error_offset]
                                     : pattern.size();
    throw_compile_error(pattern, position, error_code);
  }
  // Where there is no JIT the interpreter does the same, slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct Regex::Compiled {
  explicit Compiled(std::string_view pattern)
      : code(compile(pattern)), match_context(pcre2_match_context_create(nullptr)) {
    if (!match_context) throw Error(ErrorCode::kInternal, "out of memory for a regular expression");
    pcre2_set_match_limit(match_context.get(), kMatchLimit);
    pcre2_set_depth_limit(match_context.get(), kDepthLimit);
    pcre2_set_heap_limit(match_context.get(), kHeapLimitKib);
  }

  int match(std::string_view text, pcre2_match_data* data, std::uint32_t options) const noexcept {
    return pcre2_match(code.get(), as_code_units(text), text.size(), 0, options, data,
                       match_context.get());
  }

  Code code;
  MatchContext match_context;
};

Regex::Regex(std::string_view pattern)
    : pattern_(pattern), compiled_(std::make_unique<Compiled>(pattern)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::search(std::string_view text) const noexcept {
  // One pair: only the answer matters, not the groups. Each call its own, for thread safety.
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!data) return false;
  int result = compiled_->match(text, data.get(), 0);
  // JIT runs on 32 KiB of the machine's stack; the interpreter has the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = compiled_->match(text, data.get(), PCRE2_NO_JIT);
  return result >= 0;
}

}  // namespace tensortap
