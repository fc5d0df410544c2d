// The strategy of a run that is made anew: for other modules, or where another one is chosen.
#include "levin/accelerator/engine/automatic_strategy.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/accelerator/engine/host_memory.h"

namespace levin {

void Engine::choose_strategy(const std::vector<OptimizerConfig>& configs, int64_t batches) {
  if (automatic_ == nullptr || modules_.empty() || !automatic_->choose(configs, batches)) return;
  strategy_->release();
  use_new_strategy();
  for (const auto& module : modules_) strategy_->setup(*module, device_);
  detail::return_freed_memory();
  ++generation_;
}

void Engine::use_new_strategy() {
  strategy_.reset();
  strategy_ = new_strategy();
  stepping_->begin_anew(*strategy_, syncs_each_batch());
}

bool Engine::syncs_each_batch() const {
  return options_.gradient_accumulation_plugin.sync_each_batch ||
         (options_.strategy == "zero" && options_.engine.fsdp.zero_stage > 1);
}

}  // namespace levin
