#pragma once
// Strategies "fsdp" and "zero": parameters, gradients and optimizer state divided over the ranks, on
// modules that were not written for it.
//
// Ranks of one host keep one copy of the parameters, in memory that they share: each writes its own
// rows and reads all. Elsewhere a unit's parameters are gathered when an operator first touches them.
// Follows PyTorch's FSDP2 (fully_shard) and ZeRO (Rajbhandari et al. 2020).

#include "levin/strategy/strategy.h"

namespace levin {

/// Throw Error "strategy.fsdp.options".
std::unique_ptr<Strategy> make_fsdp(const StrategyContext& context);
std::unique_ptr<Strategy> make_zero(const StrategyContext& context);

}  // namespace levin
