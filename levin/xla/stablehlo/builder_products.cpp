// Products of matrices and convolutions.
#include <fmt/format.h>

#include <algorithm>

#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {
namespace {

/// "[b, f, 0, 1]"
std::string layout_text(std::string_view front, int64_t num_spatial) {
  std::string text = fmt::format("[{}, {}", front[0], front[1]);
  for (int64_t i = 0; i < num_spatial; ++i) text += fmt::format(", {}", i);
  return text + "]";
}

}  // namespace

Hlo Builder::dot_general(const Hlo& a, const Hlo& b, const Dims& batch_a, const Dims& batch_b,
                         const Dims& contract_a, const Dims& contract_b) {
  Dims sizes;
  for (const int64_t dim : batch_a) sizes.push_back(a.sizes[dim]);
  const auto add_free = [&](const Hlo& x, const Dims& batch, const Dims& contract) {
    for (int64_t i = 0; i < x.rank(); ++i) {
      const bool is_free = std::ranges::find(batch, i) == batch.end() &&
                           std::ranges::find(contract, i) == contract.end();
      if (is_free) sizes.push_back(x.sizes[i]);
    }
  };
  add_free(a, batch_a, contract_a);
  add_free(b, batch_b, contract_b);
  return call("dot_general", {{a, b}},
              fmt::format("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], "
                          "rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], "
                          "rhs_contracting_dimensions = [{}]>",
                          list_text(batch_a), list_text(batch_b), list_text(contract_a),
                          list_text(contract_b)),
              a.dtype, std::move(sizes));
}

Hlo Builder::convolution(const Hlo& input, const Hlo& kernel, const ConvolutionWindow& window,
                         const ConvolutionLayout& layout, int64_t feature_groups,
                         int64_t batch_groups) {
  const int64_t num_spatial = input.rank() - 2;
  Dims sizes(input.sizes.size());
  const size_t batch = layout.output.find('b');
  sizes[batch] = input.sizes[layout.input.find('b')] / batch_groups;
  sizes[1 - batch] = kernel.sizes[layout.kernel.find('o')];
  for (int64_t i = 0; i < num_spatial; ++i) {
    const int64_t padded = dilated(input.sizes[i + 2], window.lhs_dilation[i]) + window.pad_low[i] +
                           window.pad_high[i];
    sizes[i + 2] =
        num_places(padded, dilated(kernel.sizes[i + 2], window.rhs_dilation[i]), window.stride[i]);
  }
  return call(
      "convolution", {{input, kernel}},
      fmt::format("window_strides = {}, padding = {}, lhs_dilation = {}, rhs_dilation = {}, "
                  "dimension_numbers = #stablehlo.conv<{}x{}->{}>, feature_group_count = {} : i64, "
                  "batch_group_count = {} : i64",
                  array_text(window.stride), padding_text(window.pad_low, window.pad_high),
                  array_text(window.lhs_dilation), array_text(window.rhs_dilation),
                  layout_text(layout.input, num_spatial), layout_text(layout.kernel, num_spatial),
                  layout_text(layout.output, num_spatial), feature_groups, batch_groups),
      input.dtype, std::move(sizes));
}

}  // namespace levin::xla
