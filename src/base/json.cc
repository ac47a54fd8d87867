#include "base/json.h"

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

namespace tensortap {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Lead {
  std::size_t length = 0;  // of the whole sequence; 0 = no sequence starts with this byte
  // Limits of the second byte; they shut out overlong forms, surrogates and what is above U+10FFFF.
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xBF;
};

Utf8Lead classify(std::uint8_t lead) {
  if (lead < 0x80) return {.length = 1};
  if (lead < 0xC2) return {};
  if (lead < 0xE0) return {.length = 2};
  if (lead == 0xE0) return {.length = 3, .second_min = 0xA0};
  if (lead == 0xED) return {.length = 3, .second_max = 0x9F};
  if (lead < 0xF0) return {.length = 3};
  if (lead == 0xF0) return {.length = 4, .second_min = 0x90};
  if (lead < 0xF4) return {.length = 4};
  if (lead == 0xF4) return {.length = 4, .second_max = 0x8F};
  return {};
}

struct Utf8Step {
  std::size_t size_bytes;  // at least 1
  bool is_valid;
};

// The sequence at the start of a text that is not empty. A broken one ends before the first byte
// that does not fit, so that one mark stands for one broken sequence, as Unicode recommends.
Utf8Step next_sequence(std::string_view text) {
  const Utf8Lead lead = classify(static_cast<std::uint8_t>(text[0]));
  if (lead.length == 0) return {1, false};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {i, false};
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : byte >= 0x80 && byte <= 0xBF;
    if (!fits) return {i, false};
  }
  return {lead.length, true};
}

void append_escaped_byte(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<std::uint8_t>(c);
  if (byte >= 0x20) {
    out += c;
    return;
  }
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  out += "\\u00";
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 0xF];
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const Utf8Step step = next_sequence(text);
    if (!step.is_valid) {
      out += kReplacement;
    } else if (step.size_bytes == 1) {
      append_escaped_byte(out, text[0]);
    } else {
      out += text.substr(0, step.size_bytes);
    }
    text.remove_prefix(step.size_bytes);
  }
  out += '"';
}

template <class Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> digits;  // the longest double takes 24
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

}  // namespace

void JsonWriter::newline() {
  if (indent_spaces_ == 0) return;
  text_ += '\n';
  text_.append(has_items_.size() * static_cast<std::size_t>(indent_spaces_), ' ');
}

// Puts what must stand between the last token and a value or a key.
void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) text_ += ',';
  has_items_.back() = true;
  newline();
}

JsonWriter& JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  has_items_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  assert(!has_items_.empty() && !after_key_);
  const bool had_items = has_items_.back();
  has_items_.pop_back();
  if (had_items) newline();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::begin_object() { return open('{'); }
JsonWriter& JsonWriter::end_object() { return close('}'); }
JsonWriter& JsonWriter::begin_array() { return open('['); }
JsonWriter& JsonWriter::end_array() { return close(']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
  before_value();
  append_quoted(text_, name);
  text_ += indent_spaces_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_quoted(text_, text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (std::isnan(number)) return value("NaN");
  if (std::isinf(number)) return value(number > 0 ? "Infinity" : "-Infinity");
  // "-0" would be read back as the integer 0.
  if (number == 0 && std::signbit(number)) return raw("-0.0");
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::value(std::uint64_t number) {
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::value(bool truth) { return raw(truth ? "true" : "false"); }

JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  before_value();
  text_ += json;
  return *this;
}

}  // namespace tensortap
