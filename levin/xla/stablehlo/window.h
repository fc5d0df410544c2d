#pragma once
// Windows that reductions and convolutions move over a value, in StableHLO's words.

#include <string>
#include <string_view>

#include "levin/xla/stablehlo/hlo.h"

namespace levin::xla {

/// The window of a convolution, by spatial dimension: spatial sizes follow [batch, feature].
struct ConvolutionWindow {
  Dims stride, pad_low, pad_high, lhs_dilation, rhs_dilation;
};
/// "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
struct ConvolutionLayout {
  std::string_view input, kernel, output;  ///< as "bf", "oi", "bf": the two in front of the space
};

/// The window of reduce_window, for each dimension of its operand.
struct Window {
  Dims sizes, stride, base_dilation, dilation, pad_low, pad_high;
};

/// Returns the extent of `size` elements with dilation - 1 others between them, from the first to
/// the last.
int64_t dilated(int64_t size, int64_t dilation);
/// Returns the number of places of a window.
int64_t num_places(int64_t size, int64_t window, int64_t stride);

/// "dense<[[1, 1], [0, 2]]> : tensor<2x2xi64>"
std::string padding_text(const Dims& low, const Dims& high);
std::string window_text(const Window& window);

}  // namespace levin::xla
