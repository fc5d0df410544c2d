// From a loss to gradients that agree, and what may be done with them before a step.

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
              "this loss depends on no parameter; was it detached, or computed without gradients?");
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
  LEVIN_CHECK(
      reaches_parameters_ || parameters_.empty(), "accelerator.loss",
      "this loss depends on no parameter of a prepared module; give prepare the module that "
      "it was computed with");
}

void Engine::after_step(const optim::Optimizer& optimizer) {
  constexpr int64_t kFewSteps = 10;
  if (++steps_ == 1) say_who_reads_what();
  if (steps_ == kFewSteps) warn_of_unused_options();
  // What is given to compile() is recorded as a whole.
  if (stepping_->recording() == nullptr) loop_recording_.end_step(optimizer);
}

// A loop that reads its data by itself trains on the same samples everywhere, unless it sees to it.
void Engine::say_who_reads_what() const {
  if (has_loader_ || has_split() || num_processes() == 1) return;
  log::warn(
      "accelerator.loaders: {} processes train and no loader was prepared, so that each reads all "
      "that the loop gives it, the same data on all unless the loop divides them; give prepare the "
      "loader, or take this process' part by process_index() or split_between_processes()",
      num_processes());
}

// Of options to which a call in the loop gives effect, those whose call has never come.
void Engine::warn_of_unused_options() const {
  if (stepping_->accumulation_steps() > 1 && !stepping_->state().has_windows) {
    log::warn(
        "accelerator.accumulate: gradient_accumulation_steps = {} and no batch is in an "
        "accumulation window, so "
        "that each is stepped with; begin the loop's body with `const auto scope = "
        "accelerator.accumulate();`",
        stepping_->accumulation_steps());
  }
  if (options_.engine.compile != "no" && !stepping_->state().has_recorded) {
    log::warn(
        "accelerator.compile: compile = {} and no step is recorded, so that all run as they are; "
        "make them by what `accelerator.compile([&](const Batch& batch) {{ ... }})` gives",
        options_.engine.compile);
  }
  const DataLoaderConfiguration& data = options_.dataloader_config;
  const bool configures = data.split_batches || data.dispatch_batches || !data.even_batches ||
                          data.data_seed || !options_.rng_types.empty() ||
                          !options_.engine.use_distributed_sampler;
  if (configures && !has_loader_) {
    log::warn(
        "accelerator.loaders: dataloader_config, rng_types and use_distributed_sampler are of "
        "loaders that prepare was given, and it was given none; prepare the training's loader");
  }
}

}  // namespace levin
