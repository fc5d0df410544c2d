#pragma once
// Strategy "ddp" in a form that can be recorded: gradients are averaged after backward, by
// operators that a graph has as nodes.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// Of options that make_ddp has checked. The same weights bit for bit as make_ddp's, which overlaps
/// the ranks' exchange with backward. Every parameter of a module that a backward touches must have
/// a gradient, else it throws Error "strategy.ddp.unused". Throws Error "strategy.ddp.options" for
/// a comm hook, local SGD, static graphs, exchanges without overlap and overlapped updates, which
/// it does not know.
std::unique_ptr<Strategy> make_recordable_ddp(const StrategyContext& context);

}  // namespace levin
