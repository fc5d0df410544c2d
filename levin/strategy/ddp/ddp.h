#pragma once
// Strategy "ddp": every rank holds the whole module; gradients are averaged over the ranks.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// Throws Error "strategy.ddp.options" for words that are none.
std::unique_ptr<Strategy> make_ddp(const StrategyContext& context);

}  // namespace levin
