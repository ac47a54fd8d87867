#include "cli/output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <poll.h>
#include <unistd.h>

#include <fmt/core.h>

namespace tensortap::cli {
namespace {

std::string spaces(std::size_t count) { return std::string(count, ' '); }

// Appends a paragraph without line breaks, broken at blanks.
void append_wrapped(std::string& out, std::string_view paragraph, std::size_t width) {
  std::size_t column = 0;
  while (!paragraph.empty()) {
    const std::size_t end = std::min(paragraph.find(' '), paragraph.size());
    const std::string_view word = paragraph.substr(0, end);
    paragraph.remove_prefix(std::min(end + 1, paragraph.size()));
    if (word.empty()) continue;
    const std::size_t word_width = display_width(word);
    if (column > 0 && column + 1 + word_width > width) {
      out += '\n';
      column = 0;
    }
    if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word_width;
  }
}

double mean_of_finite(std::span<const double> values) {
  double sum = 0.0;
  std::size_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

}  // namespace

void write_out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void flush_out() { std::fflush(stdout); }

bool is_out_open() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) < 0 || (out.revents & (POLLERR | POLLHUP)) == 0;
}

void write_error(std::string_view message) {
  flush_out();  // so that the two streams stay in order on a terminal
  const std::string line = fmt::format("tensortap: {}\n", message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string escape(std::string_view text_untrusted) {
  std::string out;
  for (std::size_t i = 0; i < text_untrusted.size(); ++i) {
    const auto c = static_cast<unsigned char>(text_untrusted[i]);
    const bool is_c1 = c == 0xC2 && i + 1 < text_untrusted.size() &&
                       static_cast<unsigned char>(text_untrusted[i + 1]) < 0xA0;
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else if (is_c1) {  // U+0080 to U+009F: controls too, two bytes in UTF-8
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text_untrusted[++i]));
    } else {
      out += static_cast<char>(c);
    }
  }
  return out;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  // Counts stay whole up to what a column can hold.
  if (std::abs(value) < 1e9 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  return fmt::format("{:.6g}", value);
}

std::string exact_number(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::string with_separators(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t position = digits.size(); position > 3;) {
    position -= 3;
    digits.insert(position, ",");
  }
  return digits;
}

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_separators(count), noun, count == 1 ? "" : "s");
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string wrap(std::string_view text, std::size_t width) {
  std::string out;
  std::string paragraph;
  const auto end_paragraph = [&] {
    append_wrapped(out, paragraph, width);
    if (!paragraph.empty()) out += '\n';
    paragraph.clear();
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool is_item = line.starts_with("- ") || line.starts_with("* ");
    const bool is_fixed = line.empty() || line.starts_with(' ');
    if (is_item || is_fixed) end_paragraph();
    if (is_fixed) {
      out.append(line) += '\n';
    } else {
      paragraph.append(paragraph.empty() ? "" : " ").append(line);
    }
  }
  end_paragraph();
  return out;
}

std::string sparkline(std::span<const double> values, std::size_t width) {
  static constexpr std::array kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.size() < 2) return "";
  const std::size_t count = std::min(width, values.size());
  std::vector<double> points;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * values.size() / count;
    const std::size_t last = (i + 1) * values.size() / count;
    points.push_back(mean_of_finite(values.subspan(first, last - first)));
    if (!std::isfinite(points.back())) continue;
    low = std::min(low, points.back());
    high = std::max(high, points.back());
  }
  std::string out;
  for (const double point : points) {
    if (!std::isfinite(point)) {
      out += "·";
      continue;
    }
    // Halved first, so that the range of the largest doubles does not overflow.
    const double share = high > low ? (point / 2 - low / 2) / (high / 2 - low / 2) : 0.0;
    out += kBlocks[std::min<std::size_t>(static_cast<std::size_t>(share * 8.0), 7)];
  }
  return out;
}

void Table::add_column(std::string_view title, Align align) {
  titles_.emplace_back(title);
  aligns_.push_back(align);
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(titles_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (const std::string& title : titles_) widths.push_back(display_width(title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string out;
  append_line(out, titles_, widths, indent);
  for (const auto& row : rows_) append_line(out, row, widths, indent);
  return out;
}

void Table::append_line(std::string& out, const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths, std::size_t indent) const {
  out += spaces(indent);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding = spaces(widths[i] - display_width(cells[i]));
    if (aligns_[i] == Align::kRight) out += padding;
    out += cells[i];
    if (i + 1 == cells.size()) break;
    if (aligns_[i] == Align::kLeft) out += padding;
    out += "  ";
  }
  out += '\n';
}

}  // namespace tensortap::cli
