#include "monitor/text_file.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"

namespace tensortap {
namespace {

constexpr std::size_t kMaxBytes = 8u << 20;
constexpr std::string_view kBlanks = " \t";

}  // namespace

bool read_text_file(const std::string& path, std::string& text) {
  text.clear();
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return false;
  std::array<char, 16384> chunk;
  while (text.size() < kMaxBytes) {
    const ssize_t count = ::read(file.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      text.clear();
      return false;
    }
    if (count == 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return true;
}

std::optional<std::string_view> take_line(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view take_word(std::string_view& rest) {
  const std::size_t begin = rest.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return rest = {};
  rest.remove_prefix(begin);
  const std::string_view word = rest.substr(0, rest.find_first_of(kBlanks));
  rest.remove_prefix(word.size());
  return word;
}

double take_number(std::string_view& rest) {
  const std::string_view word = take_word(rest);
  std::uint64_t number = 0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  return result.ec == std::errc() ? static_cast<double>(number) : 0.0;
}

}  // namespace tensortap
