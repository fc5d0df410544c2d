#pragma once
// ranks_after_forward: over how many ranks a gathered unit is sharded between forward and backward
// (reshard_after_forward of PyTorch's fully_shard).

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/module/wrap.h"
#include "levin/strategy/options.h"

namespace levin::fsdp {

/// Returns whether a unit stays gathered after forward. of_unit: what wrap() says. is_rest: parameters
/// outside of wrapped modules, which stay gathered.
LEVIN_API bool stays_gathered(const FsdpOptions& options, const ReshardAfterForward& of_unit,
                              bool is_rest);

/// Returns 1 if the unit stays gathered, num_ranks (the ranks that share a copy of the parameters) if
/// it is freed, and a number between them if so many neighbouring ranks keep parts of it. of_unit: what
/// wrap() says. is_rest: parameters outside of wrapped modules, which stay gathered. Throws Error
/// "strategy.fsdp.options" for a number of ranks that does not divide num_ranks, and for a unit that is
/// to be freed under gathered_mb = -1.
LEVIN_API int64_t ranks_after_forward(const FsdpOptions& options,
                                      const ReshardAfterForward& of_unit, bool is_rest,
                                      const std::string& unit, int64_t num_ranks);

}  // namespace levin::fsdp
