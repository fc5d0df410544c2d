#pragma once
// Carries a Plan out: what a rank packs for the others, one all_to_all, and its new part put together
// of what came. Between the plan, which knows no tensors, and ShardedTensor.
//
//   at::Tensor part = exchange(plan, local, mesh.flat());
//
// Nothing is differentiated. Tensors are of any type and on any device that the group reaches.

#include <ATen/core/Tensor.h>

#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/shard/plan.h"

namespace levin::shard {

/// The rank's new part, contiguous memory of its own. All ranks of the group call it; nothing is sent
/// where no rank needs anything of another. Throws Error "shard.reduce" for a reduction that the type
/// does not have: mean of integers, min and max of complex numbers.
LEVIN_API at::Tensor exchange(const Plan& plan, const at::Tensor& local, comm::ProcessGroup& group);

/// One tensor for each rank, without elements where that gets nothing: views of local, which holds
/// what the plan says of this rank.
LEVIN_API std::vector<at::Tensor> pack(const Plan& plan, int64_t rank, const at::Tensor& local);
/// received[i] is what pack gave for this rank on rank i, of any shape.
LEVIN_API at::Tensor unpack(const Plan& plan, int64_t rank, const at::Tensor& local,
                            const std::vector<at::Tensor>& received);

}  // namespace levin::shard
