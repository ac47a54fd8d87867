#include "report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

namespace tensortap::report {
namespace {

constexpr double kWidth = 640.0;
constexpr double kHeight = 300.0;
constexpr double kLeft = 70.0;
constexpr double kRight = 150.0;  // room for the legend
constexpr double kTop = 10.0;
constexpr double kBottom = 45.0;
constexpr int kTicks = 5;
constexpr std::size_t kNamedLines = 16;
// Told apart by most people with colour blindness (Okabe and Ito).
constexpr std::array<std::string_view, 8> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#e69f00", "#56b4e9", "#000000", "#999933"};

struct Range {
  double low = 0.0;
  double high = 1.0;
  bool is_empty = true;
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = is_empty ? value : std::min(low, value);
    high = is_empty ? value : std::max(high, value);
    is_empty = false;
  }
  void widen() {
    if (high > low) return;
    low -= 0.5;
    high += 0.5;
  }
  double place(double value) const { return (value - low) / (high - low); }
};

double x_of(const Range& range, double value) {
  return kLeft + range.place(value) * (kWidth - kLeft - kRight);
}
double y_of(const Range& range, double value) {
  return kHeight - kBottom - range.place(value) * (kHeight - kTop - kBottom);
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape_html(text));
}

std::string axes(const Range& x, const Range& y, std::string_view x_title,
                 std::string_view y_title) {
  std::string out;
  for (int i = 0; i <= kTicks; ++i) {
    const double share = static_cast<double>(i) / kTicks;
    const double x_value = x.low + share * (x.high - x.low);
    const double y_value = y.low + share * (y.high - y.low);
    const double y_at = y_of(y, y_value);
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kLeft, y_at,
                       kWidth - kRight);
    out +=
        text_at(x_of(x, x_value), kHeight - kBottom + 16, "middle", fmt::format("{:.4g}", x_value));
    out += text_at(kLeft - 6, y_at + 4, "end", fmt::format("{:.3g}", y_value));
  }
  out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", x_title);
  out += fmt::format(
      "<text transform=\"translate(14 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (kTop + kHeight - kBottom) / 2, escape_html(y_title));
  return out;
}

std::string path_of(const Line& line, const Range& x, const Range& y) {
  std::string path;
  bool is_down = false;
  for (std::size_t i = 0; i < std::min(line.x.size(), line.y.size()); ++i) {
    if (!std::isfinite(line.x[i]) || !std::isfinite(line.y[i])) {
      is_down = false;
      continue;
    }
    path +=
        fmt::format("{}{:.1f} {:.1f}", is_down ? "L" : "M", x_of(x, line.x[i]), y_of(y, line.y[i]));
    is_down = true;
  }
  return path;
}

}  // namespace

std::string escape_html(std::string_view text_untrusted) {
  std::string out;
  for (const char c : text_untrusted) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string line_chart(std::string_view x_title, std::string_view y_title,
                       std::span<const Line> lines) {
  Range x;
  Range y;
  for (const Line& line : lines) {
    for (const double value : line.x) x.take(value);
    for (const double value : line.y) y.take(value);
  }
  x.widen();
  y.widen();
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kHeight);
  out += axes(x, y, x_title, y_title);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view color = kColors[i % kColors.size()];
    out += fmt::format("<path class=\"line\" stroke=\"{}\" d=\"{}\"/>\n", color,
                       path_of(lines[i], x, y));
    if (i >= kNamedLines) continue;
    const double at = kTop + 10 + 16 * static_cast<double>(i);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                       kWidth - kRight + 8, at - 9, color);
    out += text_at(kWidth - kRight + 22, at, "start", lines[i].name);
  }
  return out + "</svg>\n";
}

std::string bar_chart(std::span<const Bar> bars) {
  constexpr double kNames = 190.0;
  constexpr double kValues = 80.0;
  constexpr double kStep = 20.0;
  double largest = 0.0;
  for (const Bar& bar : bars) {
    if (std::isfinite(bar.value)) largest = std::max(largest, bar.value);
  }
  if (largest == 0.0) largest = 1.0;
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth,
                                kStep * static_cast<double>(bars.size()) + 4);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double top = kStep * static_cast<double>(i) + 2;
    const double value = std::isfinite(bars[i].value) ? std::max(0.0, bars[i].value) : 0.0;
    const double length = value / largest * (kWidth - kNames - kValues);
    out += text_at(kNames - 6, top + 13, "end", bars[i].name);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
        kNames, top, length, kStep - 4, kColors[0]);
    out += text_at(kNames + length + 6, top + 13, "start", fmt::format("{:.4g}", bars[i].value));
  }
  return out + "</svg>\n";
}

}  // namespace tensortap::report
