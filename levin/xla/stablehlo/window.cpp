#include "levin/xla/stablehlo/window.h"

#include <fmt/format.h>

namespace levin::xla {

int64_t dilated(int64_t size, int64_t dilation) {
  return size == 0 ? 0 : (size - 1) * dilation + 1;
}

int64_t num_places(int64_t size, int64_t window, int64_t stride) {
  return size < window ? 0 : (size - window) / stride + 1;
}

std::string padding_text(const Dims& low, const Dims& high) {
  std::string rows;
  for (size_t i = 0; i < low.size(); ++i) {
    rows += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", low[i], high[i]);
  }
  return fmt::format("dense<[{}]> : tensor<{}x2xi64>", rows, low.size());
}

std::string window_text(const Window& window) {
  return fmt::format(
      "window_dimensions = {}, window_strides = {}, base_dilations = {}, window_dilations = {}, "
      "padding = {}",
      array_text(window.sizes), array_text(window.stride), array_text(window.base_dilation),
      array_text(window.dilation), padding_text(window.pad_low, window.pad_high));
}

}  // namespace levin::xla
