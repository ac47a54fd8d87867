#include "rules/expression/lexer.h"

#include <array>
#include <cctype>
#include <charconv>

#include <fmt/core.h>

#include "base/error.h"

namespace tensortap::expression {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
// A name may hold what names of tensors hold: "scalar/train/loss", "Net_fc1.weight".
bool continues_name(char c) { return starts_name(c) || is_digit(c) || c == '.'; }

// A slash belongs to the name when the name goes on right behind it: "scalar/lr", but not "a / b".
std::size_t end_of_name(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const bool is_inner_slash =
        text[at] == '/' && at + 1 < text.size() && starts_name(text[at + 1]);
    if (!continues_name(text[at]) && !is_inner_slash) break;
    ++at;
  }
  return at;
}

Token read_number(std::string_view text, std::size_t at) {
  Token token{TokenKind::kNumber, "", 0.0, at};
  const char* first = text.data() + at;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), token.number);
  if (error != std::errc())
    fail_at({TokenKind::kName, std::string(1, *first), 0.0, at}, "not a number");
  token.text = std::string(first, end);
  return token;
}

Token read_quoted(std::string_view text, std::size_t at) {
  const std::size_t end = text.find(text[at], at + 1);
  if (end == std::string_view::npos) {
    fail_at({TokenKind::kSymbol, std::string(1, text[at]), 0.0, at}, "this quote is never closed");
  }
  return {TokenKind::kQuoted, std::string(text.substr(at + 1, end - at - 1)), 0.0, at};
}

Token read_symbol(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 13> kSymbols = {">=", "<=", "==", "!=", ">", "<", "+",
                                                         "-",  "*",  "/",  "(",  ")", ","};
  for (const std::string_view symbol : kSymbols) {
    if (text.substr(at).starts_with(symbol))
      return {TokenKind::kSymbol, std::string(symbol), 0.0, at};
  }
  fail_at({TokenKind::kSymbol, std::string(1, text[at]), 0.0, at},
          "this character has no meaning here");
}

}  // namespace

void fail_at(const Token& token, std::string_view what) {
  const std::string found =
      token.kind == TokenKind::kEnd ? std::string("the end") : fmt::format("'{}'", token.text);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("at character {} ({}): {}", token.position + 1, found, what));
}

std::vector<Token> tokenize(std::string_view text) {
  std::vector<Token> tokens;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
    if (at == text.size()) break;
    const char c = text[at];
    const bool is_number =
        is_digit(c) || (c == '.' && at + 1 < text.size() && is_digit(text[at + 1]));
    if (starts_name(c)) {
      const std::size_t end = end_of_name(text, at);
      tokens.push_back({TokenKind::kName, std::string(text.substr(at, end - at)), 0.0, at});
      at = end;
    } else if (is_number) {
      tokens.push_back(read_number(text, at));
      at += tokens.back().text.size();
    } else if (c == '\'' || c == '"') {
      tokens.push_back(read_quoted(text, at));
      at += tokens.back().text.size() + 2;
    } else {
      tokens.push_back(read_symbol(text, at));
      at += tokens.back().text.size();
    }
  }
  tokens.push_back({TokenKind::kEnd, "", 0.0, text.size()});
  return tokens;
}

}  // namespace tensortap::expression
