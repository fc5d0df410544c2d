#pragma once
// Which tensors of a save all ranks hold alike, so that any of them may write a piece.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/checkpoint/saving/save_plan_impl.h"

namespace levin::detail {

/// What tells one value of a tensor from another, for each tensor of the plan in its order: all
/// bytes of a small one, samples of a large one. Tensors on devices whose memory cannot be read
/// piece by piece are another value on every rank. A part of a tensor is told by that alone.
at::Tensor values_of(const SavePlan& plan, const Sources& own, int64_t rank);

/// By tensor of the plan: all ranks hold the same. Where that is not so of a large one, it is so of
/// none that is large, for the ranks are then of different steps (LocalSGD between its averages).
std::vector<bool> held_by_all(const SavePlan& plan, const std::vector<at::Tensor>& values);

}  // namespace levin::detail
