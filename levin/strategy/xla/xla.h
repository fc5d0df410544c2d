#pragma once
// The strategy of the devices of one XLA plugin (TPU cores, GPUs, parts of a CPU): one process
// holds them all. Each has the parameters and a part of every batch; the step is one program, over
// which XLA's partitioner (Xu et al. 2021, GSPMD) spreads the work and the sums over gradients.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// Throws Error "strategy.xla" without the device xla, or in a run of several processes.
std::unique_ptr<Strategy> make_xla(const StrategyContext& context);

}  // namespace levin
