#pragma once
// The engine makes PreparedOptimizer of these.

#include <cstdint>
#include <memory>
#include <optional>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/stepping.h"
#include "levin/module/optimizer_config.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// total_steps: as many steps as the schedule is over, -1 when not known.
LEVIN_API PreparedOptimizer make_prepared_optimizer(std::unique_ptr<optim::Optimizer> optimizer,
                                                    const std::optional<Schedule>& schedule,
                                                    int64_t frequency, int64_t total_steps,
                                                    std::shared_ptr<Stepping> stepping);

}  // namespace levin
