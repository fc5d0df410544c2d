#pragma once
// Descriptions of optimizers and learning rate schedules, which a module's configure_optimizers
// returns, and gradient clipping. build_optimizer makes the optimizers once the strategy has placed
// the parameters.
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

/// Describes SGD (torch.optim.SGD). It runs as a fused ATen call (at::_fused_sgd_) over flat state.
inline OptimizerConfig sgd(SgdOptions options = {}) { return OptimizerConfig(options); }
/// Describes Adam (torch.optim.Adam). It runs as a fused ATen call over flat state.
inline OptimizerConfig adam(AdamOptions options = {}) { return OptimizerConfig(options); }
/// Describes AdamW (torch.optim.AdamW). It runs as a fused ATen call over flat state.
inline OptimizerConfig adamw(AdamWOptions options = {}) { return OptimizerConfig(options); }

/// Describes an optimizer of any class of torch::optim, with the options of that class:
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

// Learning rate schedules. A schedule is a factor of the learning rate as a function of the
// optimizer step. Except for lambda, it rises linearly from 0 over the first warmup_steps, as in
// transformers. total_steps = -1 means the number of steps that the trainer will run. Each function
// throws Error "optim.schedule.options" for values outside their range. A schedule that needs the
// total throws Error "optim.schedule.total_steps" in the run if the run has no limit.
//
//   Schedule schedule = levin::optim::linear({.warmup_steps = 100, .total_steps = 10'000});

/// Options of constant.
struct ConstantOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
};
/// Keeps the learning rate after the warm-up: transformers.get_constant_schedule_with_warmup.
LEVIN_API Schedule constant(ConstantOptions options = {});

/// Options of linear.
struct LinearOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until end_factor; -1: those of the run
  double end_factor = 0.0;   ///< factor at total_steps, at least 0
};
/// The rate falls linearly from the full rate at the end of the warm-up to end_factor at
/// total_steps: transformers.get_linear_schedule_with_warmup.
LEVIN_API Schedule linear(LinearOptions options = {});

/// Options of cosine.
struct CosineOptions {
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
  int64_t total_steps = -1;  ///< optimizer steps until the end; -1: those of the run
  double num_cycles = 0.5;   ///< periods of the cosine; 0.5 falls once from 1 to min_factor
  double min_factor = 0.0;   ///< smallest factor after the warm-up, at least 0
};
/// The rate falls along half a cosine to min_factor at total_steps (Loshchilov and Hutter 2016):
/// transformers.get_cosine_schedule_with_warmup.
LEVIN_API Schedule cosine(CosineOptions options = {});

/// Options of step.
struct StepOptions {
  int64_t step_size = 1000;  ///< optimizer steps between two decays, at least 1
  double gamma = 0.1;        ///< factor of each decay, at least 0
  int64_t warmup_steps = 0;  ///< optimizer steps of linear warm-up
};
/// Multiplies the rate by gamma after every step_size optimizer steps, counted from the start of
/// the run: torch.optim.lr_scheduler.StepLR.
LEVIN_API Schedule step(StepOptions options = {});

/// Multiplies the rate by any function of the optimizer step: torch.optim.lr_scheduler.LambdaLR.
LEVIN_API Schedule lambda(std::function<double(int64_t step)> factor);

// Gradient clipping, by norm and by value, between backward and the optimizer's step. None of these
// functions waits for the device.
//
//   levin::optim::clip_grad_norm(levin::named_parameters(*net), 1.0);

/// Scales the gradients so that the norm of all of them together is at most max_norm, and returns
/// their norm before scaling (0-dim; 0 if there is no gradient): torch.nn.utils.clip_grad_norm_. As
/// in PyTorch, max_norm = 0 makes the gradients zero, and a norm of NaN makes all of them NaN.
/// norm_type may be infinity.
///
/// For a parameter that is sharded over ranks (shard/sharded_tensor.h), the norm covers the shards
/// of all ranks, and elements held by several ranks are counted once. All ranks must call it then,
/// and get the same bits. Throws Error "optim.clip" unless max_norm >= 0 and norm_type > 0, and for
/// gradients that are neither dense nor sparse (COO).
LEVIN_API at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type = 2.0);

/// Clamps each gradient value to [-clip_value, clip_value]: torch.nn.utils.clip_grad_value_. Throws
/// Error "optim.clip" unless clip_value >= 0, and for gradients that are neither dense nor sparse.
LEVIN_API void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value);

/// Multiplies every gradient by factor.
LEVIN_API void scale_grad(const std::vector<NamedTensor>& parameters, double factor);
/// Divides every gradient by a number, a 0-dim tensor that the host does not read. If the number is
/// 0, the gradients become 0.
LEVIN_API void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by);

}  // namespace levin::optim
