// Reductions, whole or window by window: operators with a function of two elements.
#include <fmt/format.h>

#include <algorithm>

#include "levin/xla/stablehlo/builder.h"

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

/// The region that combines two scalars; with the name "" it returns the second of them.
std::string Builder::region_of(std::string_view name, at::ScalarType dtype) {
  const std::string type = type_text(dtype, {});
  const int64_t a = next_id_++;
  const int64_t b = next_id_++;
  std::string text = fmt::format(" ({{\n  ^bb0(%{}: {}, %{}: {}):\n", a, type, b, type);
  int64_t result = b;
  if (!name.empty()) {
    result = next_id_++;
    text += fmt::format("    %{} = \"stablehlo.{}\"(%{}, %{}) : ({}, {}) -> {}\n", result, name, a,
                        b, type, type, type);
  }
  return text + fmt::format("    \"stablehlo.return\"(%{}) : ({}) -> ()\n  }})", result, type);
}

Hlo Builder::reduce(std::string_view name, const Hlo& x, const Hlo& init, const Dims& dims) {
  if (dims.empty()) return x;
  Dims sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (std::ranges::find(dims, i) == dims.end()) sizes.push_back(x.sizes[i]);
  }
  const std::string region = region_of(name, x.dtype);
  return call("reduce", {{x, init}}, "dimensions = " + array_text(dims), x.dtype, std::move(sizes),
              region);
}

Hlo Builder::all_reduce(std::string_view name, const Hlo& x, int64_t num_replicas) {
  std::string replicas;
  for (int64_t i = 0; i < num_replicas; ++i) replicas += fmt::format("{}{}", i == 0 ? "" : ", ", i);
  const std::string region = region_of(name, x.dtype);
  return call(
      "all_reduce", {{x}},
      fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", replicas, num_replicas),
      x.dtype, x.sizes, region);
}

Hlo Builder::reduce_window(std::string_view name, const Hlo& x, const Hlo& init,
                           const Window& window) {
  Dims sizes;
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    const int64_t padded =
        dilated(x.sizes[i], window.base_dilation[i]) + window.pad_low[i] + window.pad_high[i];
    sizes.push_back(
        num_places(padded, dilated(window.sizes[i], window.dilation[i]), window.stride[i]));
  }
  const std::string region = region_of(name, x.dtype);
  return call("reduce_window", {{x, init}}, window_text(window), x.dtype, std::move(sizes), region);
}

Hlo Builder::select_and_scatter(const Hlo& x, const Hlo& source, const Window& window) {
  const std::string type = type_text(x.dtype, {});
  const int64_t a = next_id_++;
  const int64_t b = next_id_++;
  const int64_t greater = next_id_++;
  const std::string choose = fmt::format(
      " ({{\n  ^bb0(%{0}: {3}, %{1}: {3}):\n    %{2} = \"stablehlo.compare\"(%{0}, %{1}) "
      "{{comparison_direction = #stablehlo<comparison_direction GE>}} : ({3}, {3}) -> "
      "tensor<i1>\n    \"stablehlo.return\"(%{2}) : (tensor<i1>) -> ()\n  }},",
      a, b, greater, type);
  std::string add = region_of("add", x.dtype);
  add.erase(0, add.find('{'));
  const Hlo zero = constant(0, x.dtype);
  return call("select_and_scatter", {{x, source, zero}},
              fmt::format("window_dimensions = {}, window_strides = {}, padding = {}",
                          array_text(window.sizes), array_text(window.stride),
                          padding_text(window.pad_low, window.pad_high)),
              x.dtype, x.sizes, choose + " " + add);
}

}  // namespace levin::xla
