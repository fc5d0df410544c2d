#pragma once
// A curve as a picture (SVG).
// Not for users.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace levin::detail {

struct Curve {
  std::vector<double> x;
  std::vector<double> y;  ///< points that are not finite are left out
  bool log_x = false;     ///< the axis of x is logarithmic
  std::string title;
  std::string x_label;
  std::string y_label;
  std::optional<size_t> marked;  ///< point that is marked
  std::string mark_label;
};

/// Returns the text of an SVG file.
std::string svg_of(const Curve& curve);

}  // namespace levin::detail
