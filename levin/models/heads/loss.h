#pragma once
// The loss of a task, as transformers' loss functions compute it.

#include <ATen/core/Tensor.h>

#include "levin/models/heads/task.h"
#include "levin/models/inputs.h"
#include "levin/models/pretrained.h"

namespace levin {
class Batch;
}  // namespace levin

namespace levin::models {

/// Both undefined where the batch has no labels.
struct TaskLoss {
  at::Tensor loss;   ///< float32 scalar: the mean over what counts, 0 where nothing does
  at::Tensor count;  ///< int64 scalar: of how many labels
};

/// Returns the loss against "labels", or "start_positions" and "end_positions". Labels of -100 do
/// not count.
///
/// text-generation: labels [B, T] are the ids themselves; each token is predicted by the token
/// before it, within its document. fill-mask and token-classification: labels [B, T].
/// text-classification: as "problem_type" says, or by the labels: int64 [B], or numbers [B,
/// num_labels] for several labels a text, or numbers [B] where num_labels is 1; of packed rows
/// int64 [B, T], each at its document's first token. question-answering: int64 [B] each. Throws
/// Error "models.labels" for labels of other sizes, or labels without a score.
TaskLoss loss_of(Task task, const at::Tensor& logits, const Inputs& inputs, const Batch& batch,
                 const Config& config);

/// Returns the label that each position predicts, [B, T]: labels [B, T] of text-generation move to
/// the token before, within its document; others stay. Throws Error "models.labels" for other
/// sizes.
at::Tensor placed_labels(Task task, const at::Tensor& labels, const Inputs& inputs);

/// sum / count as TaskLoss has it.
TaskLoss mean_of(const at::Tensor& sum, const at::Tensor& labels);

}  // namespace levin::models
