// A loop's own accumulation windows, and what may be done with gradients before a step.

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin {

AccumulateScope Accelerator::accumulate() {
  const auto loop = engine_->in_use_->current();
  const bool ends_epoch = engine_->options_.gradient_accumulation_plugin.sync_with_dataloader &&
                          gradient_accumulation_steps() > 1 && loop != nullptr && loop->at_end();
  engine_->stepping_->begin_batch(
      {.window_size = gradient_accumulation_steps(), .ends_epoch = ends_epoch});
  engine_->loop_recording_.begin_batch();
  return {*engine_->stepping_, [](Stepping& stepping) { stepping.end_batch(); }};
}

void Accelerator::unscale_gradients() {
  for (const PreparedOptimizer& optimizer : engine_->optimizers_) unscale_gradients(optimizer);
}

void Accelerator::unscale_gradients(const PreparedOptimizer& optimizer) {
  engine_->stepping_->finish_gradients(optimizer.optimizer());
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::ranges::any_of(engine_->optimizers_, &PreparedOptimizer::step_was_skipped);
}

SteppingScope::SteppingScope(Stepping& stepping, void (*end)(Stepping&))
    : stepping_(&stepping), end_(end) {}

SteppingScope::SteppingScope(SteppingScope&& other) noexcept
    : stepping_(std::exchange(other.stepping_, nullptr)), end_(other.end_) {}

SteppingScope::~SteppingScope() {
  if (stepping_ != nullptr) end_(*stepping_);
}

NoSyncScope Accelerator::no_sync() {
  engine_->stepping_->enter_no_sync();
  return {*engine_->stepping_, [](Stepping& stepping) { stepping.leave_no_sync(); }};
}

void Accelerator::trigger_sync_in_backward() { engine_->stepping_->synchronize_next(); }

bool Accelerator::sync_gradients() const { return engine_->stepping_->sync_gradients(); }

int64_t Accelerator::gradient_accumulation_steps() const {
  return engine_->stepping_->accumulation_steps();
}

void Accelerator::backward(const at::Tensor& loss, bool synchronize) {
  LEVIN_CHECK(
      !engine_->stepping_->state().loss_guard.may_roll_back(), "accelerator.loss.policy",
      "got the policy rollback, but only the Trainer goes back to checkpoints by itself; set "
      "--nan-policy and --spike-policy to skip or stop");
  engine_->backward(loss, synchronize);
}

AutocastGuard::AutocastGuard(const Engine& engine, const AutocastKwargs& kwargs) {
  const Precision& precision = engine.precision();
  if (!precision.autocast) return;
  scope_ = std::make_unique<AutocastScope>(
      engine.device().type(), Autocast{kwargs.enabled, *precision.autocast, kwargs.cache_enabled});
}

AutocastGuard::~AutocastGuard() = default;

ForwardScope Accelerator::forward_scope() const { return ForwardScope(forward_conditions()); }

ForwardScope Accelerator::evaluation_scope() const {
  return ForwardScope(engine_->forward_conditions(/*synchronizes=*/false));
}

at::Tensor Accelerator::clip_grad_norm(double max_norm, double norm_type) {
  if (!sync_gradients()) return at::zeros({});
  unscale_gradients();
  return engine_->strategy_->clip_grad_norm(engine_->parameters_, max_norm, norm_type);
}

void Accelerator::clip_grad_value(double clip_value) {
  if (!sync_gradients()) return;
  unscale_gradients();
  engine_->strategy_->wait_gradients();
  optim::clip_grad_value(engine_->parameters_, clip_value);
}

void Accelerator::join_uneven_inputs(const std::function<void()>& loop,
                                     const JoinOptions& options) {
  if (num_processes() == 1) return loop();
  Joinable& joinable = engine_->joinable();
  joinable.begin_join(!options.divide_by_initial_world_size);
  *engine_->joining_ = true;
  try {
    loop();
  } catch (...) {
    *engine_->joining_ = false;
    joinable.end_join();
    throw;
  }
  *engine_->joining_ = false;
  const auto drop_gradients = [&] {
    for (PreparedOptimizer& optimizer : engine_->optimizers_) optimizer.optimizer().zero_grad();
  };
  // It makes the others' steps, so that weights and the optimizer's state stay theirs.
  for (drop_gradients(); joinable.shadow_step(); drop_gradients()) {
    engine_->stepping_->begin_backward();
    for (PreparedOptimizer& optimizer : engine_->optimizers_) optimizer.step();
  }
}

}  // namespace levin
