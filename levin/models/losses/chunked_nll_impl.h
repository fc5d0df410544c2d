#pragma once
// The operator levin::chunked_nll. Not for users.

#include <ATen/core/Tensor.h>

#include <optional>

#include "levin/models/losses/chunked_nll.h"

namespace levin::models {

struct NllParts {
  at::Tensor nll;       ///< float32 [N]
  at::Tensor d_hidden;  ///< [N, width]: of the sum; empty where it is not wanted
  at::Tensor d_matrix;  ///< [vocabulary, width]
  at::Tensor d_bias;    ///< [vocabulary]
};

/// scale, float32 [N]: what the gradient of each position's nll is multiplied by.
NllParts call_chunked_nll(const at::Tensor& hidden, const OutputLayer& output,
                          const at::Tensor& labels, const std::optional<at::Tensor>& scale,
                          bool of_hidden, bool of_matrix);

}  // namespace levin::models
