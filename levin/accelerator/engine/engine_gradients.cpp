// The way from a loss to gradients that agree over the ranks, and what may be done with them before
// a step.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>

#include "levin/accelerator/compiled/graph_file.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/optim/optim.h"

namespace levin {

void Engine::backward(const at::Tensor& loss, bool synchronize) {
  LEVIN_CHECK(loss.numel() == 1, "accelerator.loss",
              "got a loss of shape {}, wanted a scalar; take its mean or sum",
              c10::str(loss.sizes()));
  LEVIN_CHECK(loss.requires_grad(), "accelerator.loss",
              "this loss depends on no parameter; check that it was not detached or computed "
              "without gradients");
  detail::check_recorded(stepping_->recording() != nullptr, ++losses_);
  const SyncBatchNormGuard batch_norm(synced_.get());
  if (std::has_single_bit(static_cast<uint64_t>(losses_))) check_prepared();
  stepping_->backward(loss, synchronize);
  if (!reaches_parameters_) check_gradients();
}

// Once: a loop that forgot to prepare its module would train nothing and not say so.
void Engine::check_gradients() {
  reaches_parameters_ = std::ranges::any_of(
      parameters_, [](const NamedTensor& parameter) { return parameter.tensor.grad().defined(); });
  LEVIN_CHECK(reaches_parameters_ || parameters_.empty(), "accelerator.loss",
              "this loss depends on no parameter of a prepared module; give prepare the module "
              "that computed it");
}

void Engine::after_step(const optim::Optimizer& optimizer) {
  constexpr int64_t kFewSteps = 10;
  if (++steps_ == 1) say_who_reads_what();
  if (steps_ == kFewSteps) warn_of_unused_options();
  // A function given to compile() is recorded as a whole.
  if (stepping_->recording() == nullptr) loop_recording_.end_step(optimizer);
}

// A loop that reads its data by itself trains on the same samples everywhere, unless it sees to it.
void Engine::say_who_reads_what() const {
  if (has_loader_ || has_split() || num_processes() == 1) return;
  log::warn(
      "accelerator.loaders: {} processes train but no loader was prepared, so all processes train "
      "on the same data unless the loop splits it; give prepare the loader, or split the data by "
      "process_index() or split_between_processes()",
      num_processes());
}

// Warns of options that need a call in the loop, if that call has never come.
void Engine::warn_of_unused_options() const {
  if (stepping_->accumulation_steps() > 1 && !stepping_->state().has_windows) {
    log::warn(
        "accelerator.accumulate: gradient_accumulation_steps = {}, but no batch ran within "
        "accumulate(), so every batch makes a step; begin the loop's body with `const auto scope = "
        "accelerator.accumulate();`",
        stepping_->accumulation_steps());
  }
  if (options_.engine.compile != "no" && !stepping_->state().has_recorded) {
    log::warn(
        "accelerator.compile: compile = {}, but no step was recorded, so all steps ran eagerly; "
        "run them with the function that `accelerator.compile([&](const Batch& batch) {{ ... }})` "
        "returns",
        options_.engine.compile);
  }
  const DataLoaderConfiguration& data = options_.dataloader_config;
  const bool configures = data.split_batches || data.dispatch_batches || !data.even_batches ||
                          data.data_seed || !options_.rng_types.empty() ||
                          !options_.engine.use_distributed_sampler;
  if (configures && !has_loader_) {
    log::warn(
        "accelerator.loaders: dataloader_config, rng_types and use_distributed_sampler apply to "
        "prepared loaders only, but none was prepared; give prepare the training loader");
  }
}

}  // namespace levin
