// Small text helpers shared by parameters, CLI and error messages. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

std::string_view trim(std::string_view text);
// Splits on `separator` outside (), [] and {} and trims the parts: "a{1,3}, b" -> {"a{1,3}", "b"}.
// Empty parts are left out.
std::vector<std::string> split_list(std::string_view text, char separator = ',');
std::string join(std::span<const std::string> parts, std::string_view separator);

// Whole text or nothing; surrounding blanks allowed. parse_int takes integral floats too ("10.0"),
// parse_bool takes true/false/1/0/yes/no in any case.
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
std::optional<bool> parse_bool(std::string_view text);

// Up to `limit` candidates that look like `wanted` (edit distance, or one contains the other),
// nearest first.
std::vector<std::string> near_names(std::string_view wanted,
                                    std::span<const std::string> candidates, std::size_t limit = 3);
// " (did you mean 'a' or 'b'?)", or "" when nothing is near.
std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates);

}  // namespace tensortap
