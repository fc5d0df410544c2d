#pragma once
// The strategy of the devices of one XLA plugin (TPU cores, GPUs, parts of a CPU). One process
// holds all of its machine's: each has the parameters and a part of every batch; the step is one
// program, over which XLA's partitioner (Xu et al. 2021, GSPMD) spreads the work and the sums over
// gradients. Several processes (the hosts of a TPU slice) run it as replicas, as ddp's ranks run
// theirs: each reads its part of the data, gradients are averaged within the program, and buffers
// are rank 0's.

#include <memory>

#include "levin/strategy/strategy.h"

namespace levin {

/// Throws Error "strategy.xla" without the device xla, "strategy.ddp.options" for several processes
/// with options of ddp that change what is exchanged.
std::unique_ptr<Strategy> make_xla(const StrategyContext& context);

}  // namespace levin
