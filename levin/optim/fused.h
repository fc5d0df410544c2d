#pragma once
// SGD, Adam and AdamW as one fused ATen call for each group of parameters.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "levin/optim/optimizer.h"

namespace levin::optim {

/// Returns whether the fused kernels take this parameter: a dense floating tensor on a CPU or CUDA
/// device.
bool can_fuse(const at::Tensor& parameter);

/// Returns the names of the state's tensors for each parameter.
std::span<const std::string_view> fused_slots(const OptimizerConfig::Kind& kind);

/// The tensors of a fused call, by parameter.
struct FusedCall {
  at::TensorList parameters;
  at::TensorList gradients;
  std::span<const std::vector<at::Tensor>> slots;  ///< [slot][parameter]
  at::TensorList step_counts;                      ///< float, 0-dim; count this step
  bool is_first_step = false;
};

/// Updates parameters of one group. lr: a double, or a tensor of one for a recorded step.
template <class LearningRate>
void call_fused(const OptimizerConfig::Kind& kind, const ParameterGroup& group,
                const FusedCall& call, const LearningRate& lr);

/// Returns the gradient in the parameter's strides, since the kernels walk both memories in step: itself, or a copy.
/// Throws Error "optim.sparse".
at::Tensor dense_gradient(std::string_view optimizer, const at::Tensor& parameter,
                          const at::Tensor& gradient);

/// kind: any but TorchOptimizerOptions. The state's dtype is the parameter's, as in torch.optim.
std::unique_ptr<Optimizer> make_fused(const OptimizerConfig& config,
                                      std::vector<NamedTensor> parameters,
                                      std::vector<ParameterGroup> groups);

}  // namespace levin::optim
