#pragma once
// SGD, Adam and AdamW as one fused ATen call for each group of parameters.

#include <memory>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// Returns whether the fused kernels take this parameter: a dense floating tensor on a CPU or CUDA
/// device.
bool can_fuse(const at::Tensor& parameter);

/// kind: any but TorchOptimizerOptions. The state's dtype is the parameter's, as in torch.optim.
std::unique_ptr<Optimizer> make_fused(const OptimizerConfig& config,
                                      std::vector<NamedTensor> parameters,
                                      std::vector<ParameterGroup> groups);

}  // namespace levin::optim
