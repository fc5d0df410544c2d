#pragma once
// The strategy that the sizes of a ParallelismConfig name.

#include <cstdint>
#include <string>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"

namespace levin::detail {

/// Returns the strategy of a run with so many ranks: that of the options unless it is auto and a size
/// of parallelism_config is above 1. Throws Error "accelerator.parallelism" for sizes that are below
/// 1, whose product is not the number of ranks, that are not there yet, or that the named strategy
/// contradicts.
LEVIN_API std::string strategy_of(const AcceleratorOptions& options, int64_t ranks);
/// Returns the mesh of strategies fsdp and zero: that of the options, or "replicate=2,fsdp=4" where
/// parallelism_config has both sizes. Throws Error "accelerator.parallelism" where they differ.
LEVIN_API std::string mesh_of(const AcceleratorOptions& options);

}  // namespace levin::detail
