// Cuts an expression into words. Used by parser.cc. Pure function, thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap::expression {

enum class TokenKind { kNumber, kName, kQuoted, kSymbol, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;          // a quoted one without its quotes
  double number = 0.0;       // of a kNumber
  std::size_t position = 0;  // of its first character, from 0
};

// Ends with a kEnd. Throws Error(kInvalidArgument) at a character that belongs to no word.
std::vector<Token> tokenize(std::string_view text);

// Throws Error(kInvalidArgument): "at character 12 ('foor'): expected …".
[[noreturn]] void fail_at(const Token& token, std::string_view what);

}  // namespace tensortap::expression
