#pragma once
// The arithmetic of layers for the next token of a few texts. A matrix is read once, and between
// matrices the calls of operators take the time; loops do the same in half of it.
//
// All return undefined if the operators must do the work: more than one token a text, more texts
// than kFewTexts, types other than float32, other devices, gradients, autocast, observers of
// operators.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/base/export.h"

namespace levin::models {

inline constexpr int64_t kFewTexts = 16;

/// at::linear(x, weight, bias) of x [.., in]. BLAS libraries, which are made for larger products, read the matrix
/// at half the speed of a loop with prefetches.
LEVIN_API at::Tensor row_product(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias);

/// The same where the matrix lies as [in, out], as GPT-2's: bias + x weight.
LEVIN_API at::Tensor row_product_transposed(const at::Tensor& x, const at::Tensor& weight,
                                            const at::Tensor& bias);

/// Root mean square norm of x [texts, 1, width] or [texts, 1, heads, width], times weight or 1 + weight.
LEVIN_API at::Tensor row_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                                  bool one_plus);

/// at::layer_norm(x, {width}, weight, bias, eps) of such an x; bias may be undefined.
LEVIN_API at::Tensor row_layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, double eps);

/// rotate() of x [texts, 1, heads, head_dim].
LEVIN_API at::Tensor row_rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace levin::models
