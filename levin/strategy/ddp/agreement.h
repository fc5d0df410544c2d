#pragma once
// Agreement: that all ranks hold the same module.

#include <ATen/core/Tensor.h>

#include <span>
#include <unordered_set>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/parameters.h"

namespace levin::ddp {

/// Throws Error "strategy.parameters" on every rank, naming the first tensor whose name, type or
/// shape differs and on which ranks.
void check_same_tensors(comm::ProcessGroup& group, const std::vector<NamedTensor>& tensors);

/// Rank 0's values, in few collectives of many tensors each.
void broadcast_from_first(comm::ProcessGroup& group, std::span<const at::Tensor> tensors);

/// Moves the module to the device and gives it rank 0's values. values: the values of parameters
/// that have no memory yet. Throws the errors of check_same_tensors.
void place_as_first(comm::ProcessGroup& group, torch::nn::Module& module, at::Device device,
                    InitValues values);

/// Parameters of a base (module/base.h) that are frozen on every rank, and that every rank has from files of
/// the same contents: they need not be sent. in_place: and lie in the files' maps, so that the ranks of a
/// host have one copy of them. All ranks call it.
LEVIN_API std::unordered_set<const c10::TensorImpl*> same_base(comm::ProcessGroup& group,
                                                               const torch::nn::Module& module,
                                                               bool in_place);

/// Returns the parameters of a module that are not among taken, those of others that it shares.
std::vector<NamedTensor> parameters_apart_from(const std::vector<NamedTensor>& taken,
                                               const torch::nn::Module& module);

/// Parameters, then buffers, by name.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

}  // namespace levin::ddp
