#pragma once
// Descriptions of optimizers and schedules, as a module's configure_optimizers returns them.
// Built by build_optimizer once the strategy has placed the parameters.
//
//   return levin::optim::sgd({.lr = 0.1, .momentum = 0.9})
//       .schedule(levin::optim::cosine({.warmup_steps = 500}));

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"

namespace levin::optim {

/// SGD, Adam and AdamW run as fused ATen calls (at::_fused_sgd_ and so on) over flat state.
inline OptimizerConfig sgd(SgdOptions options = {}) { return OptimizerConfig(options); }
inline OptimizerConfig adam(AdamOptions options = {}) { return OptimizerConfig(options); }
inline OptimizerConfig adamw(AdamWOptions options = {}) { return OptimizerConfig(options); }

/// Any class of torch::optim, with its own options:
/// torch_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-2)).
template <class TorchOptimizer, class Options>
OptimizerConfig torch_optimizer(Options options) {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  TorchOptimizerOptions description;
  description.class_name = c10::demangle(typeid(TorchOptimizer).name());
  description.lr = options.get_lr();
  // NOLINTNEXTLINE(performance-unnecessary-value-param): torch's classes take them over
  description.make = [options](Groups groups) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<TorchOptimizer>(std::move(groups), options);
  };
  return OptimizerConfig(std::move(description));
}

/// In all of these total_steps = -1 takes what the trainer will run, and over the first
/// warmup_steps the rate rises linearly from 0, as in Hugging Face's schedules.

struct ConstantOptions {
  int64_t warmup_steps = 0;
};
LEVIN_API Schedule constant(ConstantOptions options = {});

/// Falls linearly from the full rate at the end of the warm-up to end_factor at total_steps:
/// transformers.get_linear_schedule_with_warmup.
struct LinearOptions {
  int64_t warmup_steps = 0;
  int64_t total_steps = -1;
  double end_factor = 0.0;
};
LEVIN_API Schedule linear(LinearOptions options = {});

/// Falls along half a cosine to min_factor at total_steps (Loshchilov and Hutter 2016):
/// transformers.get_cosine_schedule_with_warmup.
struct CosineOptions {
  int64_t warmup_steps = 0;
  int64_t total_steps = -1;
  double num_cycles = 0.5;
  double min_factor = 0.0;
};
LEVIN_API Schedule cosine(CosineOptions options = {});

/// Multiplied by gamma after every step_size optimizer steps: torch.optim.lr_scheduler.StepLR.
struct StepOptions {
  int64_t step_size = 1000;
  double gamma = 0.1;
  int64_t warmup_steps = 0;
};
LEVIN_API Schedule step(StepOptions options = {});

/// Any function of the optimizer step: torch.optim.lr_scheduler.LambdaLR.
LEVIN_API Schedule lambda(std::function<double(int64_t step)> factor);

// Gradient clipping, by norm and by value; nothing waits for the device.
// Stands between backward and the optimizer's step.

/// Scales the gradients so that the norm of all of them together is at most max_norm, and returns
/// the norm they had (0-dim; 0 when there is no gradient): torch.nn.utils.clip_grad_norm_. As there
/// max_norm = 0 makes them zero, and a norm that is no number all of them no numbers. norm_type may
/// be infinity. Of a parameter that is divided over ranks (shard/leaf.h) the parts of all of them
/// count, and what several ranks have counts once; all ranks call it then, and get the same bits.
/// Throws Error "optim.clip" unless max_norm >= 0 and norm_type > 0, and for gradients
/// neither dense nor sparse.
LEVIN_API at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type = 2.0);

/// Clamps each gradient value to [-clip_value, clip_value]: torch.nn.utils.clip_grad_value_. Throws
/// Error "optim.clip" unless clip_value >= 0, and as clip_grad_norm.
LEVIN_API void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value);

/// Multiplies every gradient by factor.
LEVIN_API void scale_grad(const std::vector<NamedTensor>& parameters, double factor);
/// Divides every gradient by a number (0-dim tensor) that is not read; by 0 they become 0.
LEVIN_API void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by);

}  // namespace levin::optim
