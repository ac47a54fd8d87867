#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace tensortap {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";
// Longer names are compared by containment only: the distance takes the product of both lengths.
constexpr std::size_t kMaxDistanceLength = 256;
// Shorter texts are part of too many names to mean one of them.
constexpr std::size_t kMinContainedLength = 3;

char opener_of(char closer) {
  switch (closer) {
    case ')':
      return '(';
    case ']':
      return '[';
    case '}':
      return '{';
    default:
      return '\0';
  }
}

// Keeps `open`, the openers still waiting for their closer, up to date. What stands between a pair
// counts as text when it has no partner there, so that "[(]" leaves nothing open.
void track_brackets(std::string& open, char c) {
  if (c == '(' || c == '[' || c == '{') {
    open += c;
  } else if (const char opener = opener_of(c); opener != '\0') {
    const std::size_t at = open.rfind(opener);
    if (at != std::string::npos) open.resize(at);
  }
}

void add_part(std::vector<std::string>& parts, std::string_view part) {
  part = trim(part);
  if (!part.empty()) parts.emplace_back(part);
}

// from_chars takes no plus sign; Python and C do.
std::string_view number_text(std::string_view text) {
  text = trim(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <class Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours that turn
// one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, previous[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Smaller is nearer; nothing when they do not look alike.
std::optional<std::size_t> distance_between(std::string_view wanted, std::string_view candidate) {
  const std::size_t longer = std::max(wanted.size(), candidate.size());
  const std::size_t shorter = std::min(wanted.size(), candidate.size());
  const std::size_t max_edits = std::max<std::size_t>(1, wanted.size() / 3);
  if (longer - shorter <= max_edits && longer <= kMaxDistanceLength) {
    const std::size_t edits = edit_distance(wanted, candidate);
    // As many edits as letters would make any short name near.
    if (edits <= max_edits && edits < shorter) return edits;
  }
  const bool contained = candidate.find(wanted) != std::string_view::npos ||
                         wanted.find(candidate) != std::string_view::npos;
  if (!contained || shorter < kMinContainedLength) return std::nullopt;
  return max_edits + (longer - shorter);  // behind every misspelling
}

}  // namespace

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::string open;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && separator != '\\') {
      ++i;  // the next character stands for itself
    } else if (open.empty() && text[i] == separator) {
      add_part(parts, text.substr(start, i - start));
      start = i + 1;
    } else {
      track_brackets(open, text[i]);
    }
  }
  add_part(parts, text.substr(start));
  return parts;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  text = number_text(text);
  if (const auto whole = parse_whole<std::int64_t>(text)) return whole;
  const auto number = parse_whole<double>(text);
  constexpr double kLimit = 0x1p63;  // doubles from here on stand for integers that do not fit
  if (!number || std::trunc(*number) != *number || std::abs(*number) >= kLimit) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<double> parse_double(std::string_view text) {
  return parse_whole<double>(number_text(text));
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string lower = to_lower(trim(text));
  if (lower == "true" || lower == "1" || lower == "yes") return true;
  if (lower == "false" || lower == "0" || lower == "no") return false;
  return std::nullopt;
}

std::vector<std::string> near_names(std::string_view wanted,
                                    std::span<const std::string> candidates, std::size_t limit) {
  const std::string lower_wanted = to_lower(wanted);
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    const auto distance = distance_between(lower_wanted, to_lower(candidate));
    if (distance) near.emplace_back(*distance, candidate);
  }
  // Equal distances in the alphabet's order, so that a message never depends on the order of a
  // table.
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < near.size() && i < limit; ++i) {
    names.push_back(std::move(near[i].second));
  }
  return names;
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates) {
  const std::vector<std::string> names = near_names(wanted, candidates);
  if (names.empty()) return "";
  std::string text = " (did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += "'" + names[i] + "'";
  }
  return text + "?)";
}

}  // namespace tensortap
