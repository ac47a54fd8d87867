// Charts as SVG text, to be put into an HTML page. Used by xgboost_page. Pure functions,
// thread-safe. Texts may come from an untrusted run; they are escaped.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap::report {

std::string escape_html(std::string_view text_untrusted);

struct Line {
  std::string name;
  std::vector<double> x;  // finite values are drawn, others interrupt the line
  std::vector<double> y;
};
std::string line_chart(std::string_view x_title, std::string_view y_title,
                       std::span<const Line> lines);

struct Bar {
  std::string name;
  double value = 0.0;
};
// Lying bars, from zero, one below the other.
std::string bar_chart(std::span<const Bar> bars);

}  // namespace tensortap::report
