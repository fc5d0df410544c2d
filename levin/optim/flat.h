#pragma once
// Flat storage: one allocation that holds a tensor for each of several parameters.

#include <ATen/core/Tensor.h>

#include <vector>

namespace levin::optim {

/// Zeros with the sizes, strides, dtype and device of each tensor, side by side in one allocation
/// for each dtype and device, in the order given; on XLA devices each in its own.
std::vector<at::Tensor> flat_zeros_like(const std::vector<at::Tensor>& tensors);

}  // namespace levin::optim
