// How commands write their answers: to stdout, aligned, numbers short enough to compare by eye, and
// names from untrusted runs made harmless. Used by cli/commands. A failed write (a closed pipe, a
// full disk) is remembered by stdout and reported once, by run_program. Pure functions besides
// write_out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap::cli {

void write_out(std::string_view text);
void flush_out();
// False when nobody reads stdout any more (`| head`).
bool is_out_open();
// One line on stderr: "tensortap: <message>".
void write_error(std::string_view message);

// Control characters as \n, \x1b …, so that a tensor name cannot drive the terminal.
std::string escape(std::string_view text_untrusted);
// Six significant digits: "0.0123457", "1.5e-09", "nan", "-inf".
std::string short_number(double value);
// The shortest text that reads back as the same double, for CSV.
std::string exact_number(double value);
std::string with_separators(std::uint64_t number);               // "1,234,567"
std::string plural(std::uint64_t count, std::string_view noun);  // "1 step", "1,200 steps"

// Columns on a terminal, counted in code points.
std::size_t display_width(std::string_view text);
// Fills paragraphs anew, to lines of at most `width`, each ended; empty and indented lines stay as
// they are, a list item starts a line.
std::string wrap(std::string_view text, std::size_t width = 100);
// Block characters, at most `width` of them (values are averaged), '·' where nothing is finite. ""
// for fewer than two values.
std::string sparkline(std::span<const double> values, std::size_t width = 60);

// Rows of cells, each column as wide as its widest cell, two blanks between.
class Table {
 public:
  enum class Align { kLeft, kRight };

  void add_column(std::string_view title, Align align = Align::kLeft);
  void add_row(std::vector<std::string> cells);
  // With the titles, every line indented.
  std::string text(std::size_t indent = 0) const;

 private:
  void append_line(std::string& out, const std::vector<std::string>& cells,
                   const std::vector<std::size_t>& widths, std::size_t indent) const;

  std::vector<std::string> titles_;
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tensortap::cli
