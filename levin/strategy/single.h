#pragma once
// The strategy of one process on one device.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// Throws Error "strategy.single.world_size" in a run of several ranks.
std::unique_ptr<Strategy> make_single(const StrategyContext& context);

}  // namespace levin
