#pragma once

#include <ATen/ATen.h>

namespace levin::test {

/// A tensor whose memory is not its value: it goes the way of a tensor on another device.
inline at::Tensor elsewhere(double value) {
  return at::_neg_view(at::scalar_tensor(-value, at::kFloat));
}

}  // namespace levin::test
