#pragma once
// Descriptions of optimizers and schedules, as a module's configure_optimizers returns them.
// Built by build_optimizer once the strategy has placed the parameters.
//
//   return levin::optim::sgd({.lr = 0.1, .momentum = 0.9})
//       .schedule(levin::optim::cosine({.warmup_steps = 500}));

#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/optimizer_config.h"

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

}  // namespace levin::optim
