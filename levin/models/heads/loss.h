#pragma once
// The loss of a task, as transformers' loss functions compute it.

#include <ATen/core/Tensor.h>

#include "levin/models/config.h"
#include "levin/models/heads/task.h"
#include "levin/models/inputs.h"

namespace levin {
class Batch;
}  // namespace levin

namespace levin::models {

/// Of "labels", or "start_positions" and "end_positions"; undefined where the batch has none. float32,
/// the mean over what counts: labels of -100 do not.
///
/// text-generation: labels [B, T] are the ids themselves, each token's is predicted by the one before
/// it, within its document. fill-mask and token-classification: labels [B, T]. text-classification: as
/// "problem_type" says, or by the labels: int64 [B], or numbers [B, num_labels] for several labels a text,
/// or numbers [B] where num_labels is 1. question-answering: int64 [B] each.
/// Throws Error "models.labels" for labels of other sizes.
at::Tensor loss_of(Task task, const at::Tensor& logits, const Inputs& inputs, const Batch& batch,
                   const Config& config);

}  // namespace levin::models
