#pragma once
// An optimizer whose state is in a file, and in memory only for the part of it that is being updated: ZeRO-Offload
// and ZeRO-Infinity (Ren et al. 2021, Rajbhandari et al. 2021), for the optimizer step. Not for users.

#include <memory>
#include <vector>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// Makes the optimizer that build_optimizer makes, with its state in config.state_memory(): the same updates bit for
/// bit and the same checkpoints. has_masters: float32 copies of half parameters are part of the state. Throws Error
/// "optim.offload" for an optimizer or a parameter whose state it cannot keep there, and for memory that is too
/// small, "files.scratch" for a full disk, and what building the optimizer in memory throws.
std::unique_ptr<Optimizer> make_offloaded(const OptimizerConfig& config,
                                          std::vector<NamedTensor> parameters,
                                          std::vector<ParameterGroup> groups, bool has_masters);

}  // namespace levin::optim
