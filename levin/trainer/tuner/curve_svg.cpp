#include "levin/trainer/tuner/curve_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace levin::detail {
namespace {

constexpr double kWidth = 720.0, kHeight = 440.0;
constexpr double kLeft = 76.0, kRight = 696.0, kTop = 44.0, kBottom = 384.0;

/// Maps values of an axis to pixels.
struct Scale {
  double low, high, first, last;
  bool is_log;

  double position(double value) const {
    const double share =
        is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return first + share * (last - first);
  }
};

/// Steps of 1, 2 or 5 times a power of ten, 4 to 10 of them.
std::vector<double> linear_ticks(double low, double high) {
  const double power = std::pow(10.0, std::floor(std::log10((high - low) / 4.0)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power * 4.0 <= high - low) step = factor * power;
  }
  std::vector<double> ticks;
  const auto from = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  const auto to = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (int64_t i = from; i <= to; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

/// Powers of ten, at most 10 of them.
std::vector<double> log_ticks(double low, double high) {
  const auto from = static_cast<int64_t>(std::ceil(std::log10(low) - 1e-9));
  const auto to = static_cast<int64_t>(std::floor(std::log10(high) + 1e-9));
  if (to <= from) return {low, high};
  const int64_t step = (to - from) / 10 + 1;
  std::vector<double> ticks;
  for (int64_t i = from; i <= to; i += step) ticks.push_back(std::pow(10.0, i));
  return ticks;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    safe += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string(1, letter);
  }
  return safe;
}

void add_text(std::string& svg, double x, double y, std::string_view anchor, std::string_view more,
              const std::string& text) {
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

void add_line(std::string& svg, double x1, double y1, double x2, double y2,
              std::string_view color) {
  svg +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n",
                  x1, y1, x2, y2, color);
}

/// Returns the smallest and the largest value, apart from each other.
std::pair<double, double> range_of(const std::vector<double>& values) {
  if (values.empty()) return {1.0, 2.0};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (*low < *high) return {*low, *high};
  const double around = std::max(std::abs(*low) / 2.0, 1e-12);
  return {*low - around, *high + around};
}

}  // namespace

std::string svg_of(const Curve& curve) {
  std::vector<double> xs, ys;
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
    const bool is_shown = std::isfinite(curve.y[i]) && (!curve.log_x || curve.x[i] > 0.0);
    if (!is_shown) continue;
    xs.push_back(curve.x[i]);
    ys.push_back(curve.y[i]);
  }
  const auto [x_low, x_high] = range_of(xs);
  auto [y_low, y_high] = range_of(ys);
  const double room = 0.05 * (y_high - y_low);
  y_low -= room;
  y_high += room;
  const Scale across{x_low, x_high, kLeft, kRight, curve.log_x};
  const Scale up{y_low, y_high, kBottom, kTop, false};

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  add_text(svg, (kLeft + kRight) / 2, 26, "middle", " font-size=\"16\"", curve.title);
  for (const double tick : curve.log_x ? log_ticks(x_low, x_high) : linear_ticks(x_low, x_high)) {
    const double x = across.position(tick);
    add_line(svg, x, kTop, x, kBottom, "#e0e0e0");
    add_text(svg, x, kBottom + 18, "middle", "", fmt::format("{:.3g}", tick));
  }
  for (const double tick : linear_ticks(y_low, y_high)) {
    const double y = up.position(tick);
    add_line(svg, kLeft, y, kRight, y, "#e0e0e0");
    add_text(svg, kLeft - 8, y + 4, "end", "", fmt::format("{:.4g}", tick));
  }
  svg += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#606060\"/>\n",
      kLeft, kTop, kRight - kLeft, kBottom - kTop);
  add_text(svg, (kLeft + kRight) / 2, kBottom + 42, "middle", "", curve.x_label);
  const double middle = (kTop + kBottom) / 2;
  add_text(svg, 20, middle, "middle", fmt::format(" transform=\"rotate(-90 20 {})\"", middle),
           curve.y_label);
  svg += "<polyline fill=\"none\" stroke=\"#1f6fb4\" stroke-width=\"2\" points=\"";
  for (size_t i = 0; i < xs.size(); ++i) {
    svg += fmt::format("{:.2f},{:.2f} ", across.position(xs[i]), up.position(ys[i]));
  }
  svg += "\"/>\n";
  if (curve.marked) {
    const double x = across.position(curve.x[*curve.marked]);
    const double y = up.position(curve.y[*curve.marked]);
    svg += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#d62728\" "
        "stroke-dasharray=\"5 4\"/>\n<circle cx=\"{0:.2f}\" cy=\"{3:.2f}\" r=\"6\" "
        "fill=\"#d62728\"/>\n",
        x, kTop, kBottom, y);
    const bool is_right = x > (kLeft + kRight) / 2;  // the label goes where there is room
    add_text(svg, is_right ? x - 10 : x + 10, kTop + 20, is_right ? "end" : "start",
             " fill=\"#d62728\" stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\"",
             curve.mark_label);
  }
  return svg + "</svg>\n";
}

}  // namespace levin::detail
