// Small files of /proc as text. Used by monitor/ alone. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tensortap {

// The content, in `text` whose memory is used again. False, and `text` empty, when there is no such
// file or it cannot be read.
bool read_text_file(const std::string& path, std::string& text);

// Takes the next line off the front of `rest`; nothing at the end.
std::optional<std::string_view> take_line(std::string_view& rest);
// Takes the next word, separated by blanks, off the front; empty at the end.
std::string_view take_word(std::string_view& rest);
// The same as a number; 0 when it is none.
double take_number(std::string_view& rest);

}  // namespace tensortap
