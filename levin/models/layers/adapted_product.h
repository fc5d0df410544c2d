#pragma once
// The product of a frozen matrix with an adapter of low rank beside it, as one node of autograd.
//
//   y = x W^T + bias + scale (z A^T) B^T       z is x, or x after dropout
//
// Beside what the matrix itself takes there is nothing of the size of y or x but z: what the adapter adds is
// summed into the product where that lies, forwards and backwards, and the scale is that of vectors of r numbers.
// No gradient is computed of the matrix and the bias.

#include <ATen/core/Tensor.h>

#include "levin/base/autocast.h"
#include "levin/base/export.h"

namespace levin::models {

/// A tensor as at::linear under autocast takes it; it may be undefined.
at::Tensor in_type_of(const at::Tensor& tensor, const Autocast& autocast);

struct AdaptedMatrix {
  at::Tensor matrix;  ///< W [out, in], which needs no gradient
  at::Tensor bias;    ///< [out], which needs none; or undefined
  at::Tensor a, b;    ///< [r, in], [out, r]
  double scale = 1;
  double dropout = 0;  ///< dropout rate of the adapter's input
};

/// x [.., in] -> [.., out]; under autocast in its type. Its gradients can be differentiated. Undefined where
/// matrix or bias needs a gradient, or where all are not of one type and autocast does not make them so.
LEVIN_API at::Tensor adapted_product(const at::Tensor& x, const AdaptedMatrix& adapted);

}  // namespace levin::models
