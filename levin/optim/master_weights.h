#pragma once
// Master weights: parameters in a half type, updated in float32.

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// The optimizer that build_optimizer makes of float32 copies of the parameters, which keep what an
/// update in half would round away. A step takes the gradients over in float32 and writes the
/// copies back. The copies are in its state, as "master" of each parameter. Micikevicius et al.
/// 2018, section 3.1.
std::unique_ptr<Optimizer> make_master_weights(const OptimizerConfig& config,
                                               const std::vector<NamedTensor>& parameters);

}  // namespace levin::optim
