#pragma once
// make_prepared_optimizer: the engine makes its PreparedOptimizers.
// Not for users.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/stepping.h"
#include "levin/module/optimizer_config.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// total_steps: number of steps of the schedule; -1: unknown.
LEVIN_API PreparedOptimizer make_prepared_optimizer(std::unique_ptr<optim::Optimizer> optimizer,
                                                    const std::optional<Schedule>& schedule,
                                                    int64_t frequency, int64_t total_steps,
                                                    std::shared_ptr<Stepping> stepping);

/// For each optimizer, sets the parameters that its toggle() freezes: those of the other optimizers,
/// except parameters that it shares with them.
void prepare_toggle(const std::vector<PreparedOptimizer>& all);

}  // namespace levin
