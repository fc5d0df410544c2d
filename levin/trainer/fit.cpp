// The training loop. Read this first: the way of a batch through levin, in the order of its
// folders: data -> module -> strategy -> optim -> observe -> checkpoint.

#include <torch/nn/module.h>

#include "levin/optim/clip.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::train() {
  agree_on_stop(false);
  if (finished()) return;
  log_to(epoch_values_);
  call(&Module::on_train_start, &Callback::on_train_start);
  for (agree_on_stop(false); !finished(); agree_on_stop(false)) train_epoch();
  log_to_nothing();
  // A run that stops inside an epoch is saved as it stands there, and goes on there when resumed.
  tell(writers_, &Callback::on_train_end);
  if (progress_.in_epoch) publish({&train_values_, &epoch_values_});
  module_->on_train_end();
  tell(watchers_, &Callback::on_train_end);
}

void Run::train_epoch() {
  if (!progress_.in_epoch) begin_epoch();
  log_to(train_values_);
  look_for_end(progress_.batch);
  while (true) {
    if (validation_due()) validate_in_fit();
    if (skip_epoch_ || limits_.epoch_complete(progress_.batch)) break;
    if (at_step_boundary()) {
      agree_on_stop(/*between_steps=*/true);
      if (finished()) return;
      if (boundary_) boundary_->note(progress_, num_updates());
    }
    Batch batch;
    if (!train_loader_->next(batch)) break;
    look_for_end(progress_.batch + 1);
    train_batch(std::move(batch), progress_.batch);
  }
  end_epoch();
}

void Run::begin_epoch() {
  train_values_.reset_epoch();
  log_to(epoch_values_);
  call(&Module::on_train_epoch_start, &Callback::on_train_epoch_start);
  progress_.in_epoch = true;
  step_.check_next();
}

void Run::train_batch(Batch batch, int64_t index) {
  in_step_ = true;

  // data
  batch = to_device(std::move(batch));
  begin_values(train_values_, batch.size() - train_loader_->added());
  tell(watchers_, &Callback::on_train_batch_start, batch, index);
  if (!module_->on_train_batch_start(batch, index)) {
    skip_epoch_ = true;
    in_step_ = false;
    return;
  }

  // module, strategy and optim
  const at::Tensor loss = compiled_step(batch, index);
  accelerator_.strategy().end_batch();
  if (updated_) ++progress_.global_step;
  ++progress_.batch;
  in_step_ = false;

  // observe and checkpoint
  module_->on_train_batch_end(loss, batch, index);
  tell(watchers_, &Callback::on_train_batch_end, loss, batch, index);
  if (updated_ && should_log()) write_row();
  tell(writers_, &Callback::on_train_batch_end, loss, batch, index);
}

at::Tensor Run::take_step(const Batch& batch, int64_t index) {
  // module
  const int64_t updates_before = manual_updates();
  const at::Tensor loss = training_step(batch, index);
  updated_ = manual_updates() > updates_before;
  if (!module_->automatic_optimization) return loss;

  // strategy and optim
  const bool ends_group = limits_.group_complete(index + 1);
  if (gives_gradients(loss)) {
    compute_gradients(loss, index);
  } else if (ends_group) {
    join_exchange();
  }
  if (ends_group && gradients_ready_) updated_ = update();
  loss_weight_.reset();
  return loss;
}

at::Tensor Run::training_step(const Batch& batch, int64_t index) {
  loss_weight_.reset();
  const ForwardScope scope = accelerator_.forward_scope();
  return module_->training_step(batch, index);
}

void Run::compute_gradients(const at::Tensor& loss, int64_t index) {
  if (!gradients_ready_) begin_group();
  call(&Module::on_before_backward, &Callback::on_before_backward, loss);
  const bool ends_group = limits_.group_complete(index + 1);
  accelerator_.backward(weighted(loss, index), /*synchronize=*/ends_group, /*judged=*/loss);
  call(&Module::on_after_backward, &Callback::on_after_backward);
  gradients_ready_ = true;
}

bool Run::update() {
  gradients_ready_ = false;
  const std::optional<at::Tensor> weight = group_weight();
  if (weight && weighs_nothing(*weight)) return false;
  for (PreparedOptimizer& optimizer : optimizers_) {
    if ((progress_.global_step + 1) % optimizer.frequency() != 0) continue;
    to_mean_of_group(optimizer, weight);
    accelerator_.unscale_gradients(optimizer);
    module_->on_before_optimizer_step(optimizer);
    tell(watchers_, &Callback::on_before_optimizer_step);
    clip(optimizer);
    updating_ = true;
    optimizer.step();
    updating_ = false;
  }
  return true;
}

void Run::clip(const PreparedOptimizer& optimizer) {
  const double limit = options_.gradient_clip_val.value_or(0.0);
  if (limit == 0.0) return;  // off, as in Lightning
  const std::vector<NamedTensor>& parameters = optimizer.optimizer().parameters();
  accelerator_.strategy().wait_gradients();
  if (options_.gradient_clip_algorithm == "value") {
    optim::clip_grad_value(parameters, limit);
  } else {
    accelerator_.strategy().clip_grad_norm(parameters, limit, 2.0);
  }
}

void Run::end_epoch() {
  skip_epoch_ = false;
  drop_group();
  log_to(epoch_values_);
  module_->on_train_epoch_end();
  log_to(train_values_);
  publish({&train_values_, &epoch_values_});
  epoch_values_.reset_epoch();
  tell(watchers_, &Callback::on_train_epoch_end);
  progress_.begin_next_epoch();
  limits_.begin_epoch();
  train_loader_->set_epoch(progress_.epoch);
  tell(writers_, &Callback::on_train_epoch_end);
}

}  // namespace levin::detail
