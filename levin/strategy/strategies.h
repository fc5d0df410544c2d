#pragma once
// The strategies, each by its factory: what make_strategy chooses from.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// One process on one device. Throws Error "strategy.single.world_size" in a run of several ranks.
std::unique_ptr<Strategy> make_single(const StrategyContext& context);
/// Throws Error "strategy.ddp.options" for words that are none.
std::unique_ptr<Strategy> make_ddp(const StrategyContext& context);
/// Throw Error "strategy.fsdp.options".
std::unique_ptr<Strategy> make_fsdp(const StrategyContext& context);
std::unique_ptr<Strategy> make_zero(const StrategyContext& context);
/// Throws Error "strategy.xla" without the device xla, "strategy.ddp.options" for several processes
/// with options of ddp that change what is exchanged.
std::unique_ptr<Strategy> make_xla(const StrategyContext& context);

}  // namespace levin
