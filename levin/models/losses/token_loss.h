#pragma once
// The loss of a model's tokens without its logits. Between a body's vectors and a Pretrained's output.

#include <ATen/core/Tensor.h>

#include "levin/base/export.h"
#include "levin/models/heads/loss.h"
#include "levin/models/inputs.h"
#include "levin/models/pretrained.h"

namespace levin::models {

/// Returns the loss of text-generation and fill-mask without logits, where the scores are many or
/// most positions do not count; undefined if logits are as good. hidden [B, T, width], labels [B,
/// T] as forward takes them.
TaskLoss loss_without_logits(const PretrainedParts& parts, const at::Tensor& hidden,
                             const Inputs& inputs, const at::Tensor& labels);

/// -log of the probability that each label has after the tokens before it: float32 [B, T], 0 for what does
/// not count; the place is that of the token before. For text-generation.
LEVIN_API at::Tensor nll_of_labels(Pretrained& net, const Batch& batch);

}  // namespace levin::models
