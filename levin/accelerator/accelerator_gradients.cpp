// From a loss to gradients that agree, and what may be done with them before a step.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/compiled/graph_file.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/optim/clip.h"

namespace levin {

void Accelerator::backward(const at::Tensor& loss, bool synchronize) {
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
void Accelerator::check_gradients() {
  reaches_parameters_ = std::ranges::any_of(
      parameters_, [](const NamedTensor& parameter) { return parameter.tensor.grad().defined(); });
  LEVIN_CHECK(
      reaches_parameters_ || parameters_.empty(), "accelerator.loss",
      "this loss depends on no parameter of a prepared module; give prepare the module that "
      "it was computed with");
}

AccumulateScope Accelerator::accumulate() {
  const auto loop = in_use_->current();
  const bool ends_epoch = options_.gradient_accumulation_plugin.sync_with_dataloader &&
                          gradient_accumulation_steps() > 1 && loop != nullptr && loop->at_end();
  AccumulateScope scope(*stepping_,
                        {.window_size = gradient_accumulation_steps(), .ends_epoch = ends_epoch});
  loop_recording_.begin_batch();
  return scope;
}

void Accelerator::after_step(const optim::Optimizer& optimizer) {
  constexpr int64_t kFewSteps = 10;
  if (++steps_ == 1) say_who_reads_what();
  if (steps_ == kFewSteps) warn_of_unused_options();
  // What is given to compile() is recorded as a whole.
  if (stepping_->recording() == nullptr) loop_recording_.end_step(optimizer);
}

// A loop that reads its data by itself trains on the same samples everywhere, unless it sees to it.
void Accelerator::say_who_reads_what() const {
  if (has_loader_ || has_split() || num_processes() == 1) return;
  log::warn(
      "accelerator.loaders: {} processes train and no loader was prepared, so that each reads all "
      "that the loop gives it, the same data on all unless the loop divides them; give prepare the "
      "loader, or take this process' part by process_index() or split_between_processes()",
      num_processes());
}

// Of options to which a call in the loop gives effect, those whose call has never come.
void Accelerator::warn_of_unused_options() const {
  if (gradient_accumulation_steps() > 1 && !stepping_->state().has_windows) {
    log::warn(
        "accelerator.accumulate: gradient_accumulation_steps = {} and no batch is in an "
        "accumulation window, so "
        "that each is stepped with; begin the loop's body with `const auto scope = "
        "accelerator.accumulate();`",
        gradient_accumulation_steps());
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

void Accelerator::unscale_gradients() {
  for (const PreparedOptimizer& optimizer : optimizers_) unscale_gradients(optimizer);
}

void Accelerator::unscale_gradients(const PreparedOptimizer& optimizer) {
  stepping_->finish_gradients(optimizer.optimizer());
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::ranges::any_of(optimizers_, &PreparedOptimizer::step_was_skipped);
}

at::Tensor Accelerator::clip_grad_norm(double max_norm, double norm_type) {
  if (!sync_gradients()) return at::zeros({});
  unscale_gradients();
  return strategy_->clip_grad_norm(parameters_, max_norm, norm_type);
}

void Accelerator::clip_grad_value(double clip_value) {
  if (!sync_gradients()) return;
  unscale_gradients();
  strategy_->wait_gradients();
  optim::clip_grad_value(parameters_, clip_value);
}

void Accelerator::join_uneven_inputs(const std::function<void()>& loop,
                                     const JoinOptions& options) {
  LEVIN_CHECK(synced_ == nullptr, "strategy.join",
              "batch norm over all processes needs a batch of each; set sync_batchnorm = false");
  if (num_processes() == 1) return loop();
  auto* joinable = dynamic_cast<Joinable*>(strategy_.get());
  LEVIN_CHECK(joinable != nullptr, "strategy.join",
              "strategy '{}'{} wants the same number of batches on every rank", strategy_->name(),
              compiles() ? " of recorded steps" : "");
  joinable->begin_join(!options.divide_by_initial_world_size);
  *joining_ = true;
  try {
    loop();
  } catch (...) {
    *joining_ = false;
    joinable->end_join();
    throw;
  }
  *joining_ = false;
  const auto drop_gradients = [&] {
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.optimizer().zero_grad();
  };
  // It makes the others' steps, so that weights and the optimizer's state stay theirs.
  for (drop_gradients(); joinable->shadow_step(); drop_gradients()) {
    stepping_->begin_backward();
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.step();
  }
}

}  // namespace levin
