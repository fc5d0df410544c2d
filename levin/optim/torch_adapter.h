#pragma once
// A torch::optim class as one of levin's optimizers.

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// Throws Error "optim.group.weight_decay" when a group overrides it, since the classes of
/// torch::optim have no common way to set it.
std::unique_ptr<Optimizer> make_torch_adapter(const OptimizerConfig& config,
                                              std::vector<NamedTensor> parameters,
                                              std::vector<ParameterGroup> groups);

}  // namespace levin::optim
