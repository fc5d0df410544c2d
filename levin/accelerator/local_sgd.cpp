#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <utility>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {

LocalSGD::LocalSGD(Accelerator& accelerator, std::shared_ptr<torch::nn::Module> module,
                   const LocalSgdOptions& options)
    : accelerator_(accelerator), module_(std::move(module)), options_(options) {
  LEVIN_CHECK(options_.local_sgd_steps >= 1, "accelerator.local_sgd",
              "got local_sgd_steps = {}, wanted at least 1", options_.local_sgd_steps);
  options_.enabled = options_.enabled && accelerator.num_processes() > 1;
  for (const NamedTensor& parameter : named_parameters(*module_)) {
    LEVIN_CHECK(!options_.enabled || shard::layout_of(parameter.tensor) == nullptr,
                "accelerator.local_sgd",
                "parameter {} is sharded over ranks, but LocalSGD needs full parameters on every "
                "rank; set --strategy ddp, or leave LocalSGD out",
                parameter.name);
  }
  if (options_.enabled) no_sync_.emplace(accelerator.no_sync());
}

void LocalSGD::step() {
  if (!options_.enabled || !accelerator_.sync_gradients()) return;
  if (++steps_ % options_.local_sgd_steps == 0) average();
}

void LocalSGD::end() {
  if (!no_sync_) return;
  no_sync_.reset();
  if (steps_ % options_.local_sgd_steps != 0) average();
  options_.enabled = false;
}

void LocalSGD::average() {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module_->parameters()) {
    accelerator_.world().all_reduce(parameter, ReduceOp::kMean);
  }
  engine_of(accelerator_).strategy().agree_on_buffers();
}

}  // namespace levin
