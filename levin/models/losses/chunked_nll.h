#pragma once
// The loss of a large vocabulary, from hidden vectors and the output's matrix: scores of some positions at a
// time, never of all, and none of positions that do not count.
//
//   const OutputLayer output{.matrix = lm_head, .softcap = 30};
//   const at::Tensor loss = nll_sum(hidden, output, labels) / count;   // [N, width], [N]
//   loss.backward();
//
// Where the matrix is frozen it takes the products that scores of all positions take, and no more; its
// operator is one node of a recorded step, levin::chunked_nll.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/base/export.h"

namespace levin::models {

/// The layer that turns hidden vectors into scores: softcap * tanh((x M^T + b) / softcap).
struct OutputLayer {
  at::Tensor matrix;   ///< [vocabulary, width]
  at::Tensor bias;     ///< [vocabulary], or undefined
  double softcap = 0;  ///< 0: none
};

/// The label of what does not count.
inline constexpr int64_t kNotCounted = -100;

/// Sum of -log p(label) over the positions that count: float32, a scalar. hidden [N, width], labels int64 [N].
/// Under autocast in its type, with float32 scores. Throws Error "models.labels" for a label that is no row
/// of the matrix. A backward that keeps the graph (retain_graph) takes memory for one more gradient of the matrix.
LEVIN_API at::Tensor nll_sum(const at::Tensor& hidden, const OutputLayer& output,
                             const at::Tensor& labels);

/// The same of each position: float32 [N], 0 where none counts. Where the matrix trains, scores are
/// computed once more in backward.
LEVIN_API at::Tensor nll_of_each(const at::Tensor& hidden, const OutputLayer& output,
                                 const at::Tensor& labels);

}  // namespace levin::models
