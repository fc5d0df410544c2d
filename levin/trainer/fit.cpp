// The training loop. Read this first: the way of a batch through levin, in the order of its
// folders: data -> module -> strategy -> optim -> observe -> checkpoint.

#include <torch/nn/module.h>

#include "levin/optim/clip.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::train() {
  call(&Module::on_train_start, &Callback::on_train_start);
  for (agree_on_stop(false); !finished(); agree_on_stop(false)) train_epoch();
  // A run that stops inside an epoch is saved as it stands there, and goes on there when resumed.
  tell(writers_, &Callback::on_train_end);
  if (progress_.batch > 0) publish(train_values_);
  module_->on_train_end();
  tell(watchers_, &Callback::on_train_end);
}

void Run::train_epoch() {
  if (progress_.batch == 0) {
    train_values_.reset_epoch();
    call(&Module::on_train_epoch_start, &Callback::on_train_epoch_start);
  }
  look_for_end(progress_.batch);
  while (true) {
    if (validation_due()) validate_in_fit();
    if (skip_epoch_ || limits_.epoch_complete(progress_.batch)) break;
    if (at_step_boundary()) {
      agree_on_stop(/*between_steps=*/true);
      if (finished()) return;
    }
    Batch batch;
    if (!train_loader_->next(batch)) break;
    look_for_end(progress_.batch + 1);
    train_batch(std::move(batch), progress_.batch);
  }
  end_epoch();
}

void Run::train_batch(Batch batch, int64_t index) {
  in_step_ = true;

  // data
  batch = to_device(std::move(batch));
  tell(watchers_, &Callback::on_train_batch_start, batch, index);
  if (!module_->on_train_batch_start(batch, index)) {
    skip_epoch_ = true;
    in_step_ = false;
    return;
  }

  // module, strategy and optim
  train_values_.begin_step(batch.size() - train_loader_->added());
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

  // strategy and optim
  updated_ = manual_updates() > updates_before;
  if (module_->automatic_optimization && loss.defined()) compute_gradients(loss, index);
  if (gradients_ready_ && limits_.group_complete(index + 1)) {
    update();
    updated_ = true;
  }
  return loss;
}

at::Tensor Run::training_step(const Batch& batch, int64_t index) {
  loss_weight_.reset();
  const ForwardScope scope = accelerator_.forward_scope();
  return module_->training_step(batch, index);
}

void Run::compute_gradients(const at::Tensor& loss, int64_t index) {
  if (!gradients_ready_) {  // the first batch of a group
    for (PreparedOptimizer& optimizer : optimizers_) {
      if (progress_.global_step % optimizer.frequency() != 0) continue;
      module_->on_before_zero_grad(optimizer);
      tell(watchers_, &Callback::on_before_zero_grad);
      optimizer.zero_grad();
    }
  }
  call(&Module::on_before_backward, &Callback::on_before_backward, loss);
  accelerator_.backward(weighted(loss, index), /*synchronize=*/limits_.group_complete(index + 1));
  call(&Module::on_after_backward, &Callback::on_after_backward);
  gradients_ready_ = true;
}

at::Tensor Run::weighted(const at::Tensor& loss, int64_t index) {
  const int64_t group_size = limits_.group_size(index);
  // A mean is the mean of its group, whatever it weighs.
  if (group_size == 1 && accelerator_.rank().world_size == 1) return loss;
  if (gradients_ready_) check_same_weighting();
  if (!loss_weight_) return group_size == 1 ? loss : loss / group_size;
  group_weight_ += *loss_weight_;
  return loss * *loss_weight_;
}

void Run::update() {
  const double weight = mean_weight();
  const double scale = weight > 0.0 ? 1.0 / weight : cut_short();
  for (PreparedOptimizer& optimizer : optimizers_) {
    if ((progress_.global_step + 1) % optimizer.frequency() != 0) continue;
    const std::vector<NamedTensor>& parameters = optimizer.optimizer().parameters();
    if (scale != 1.0) {
      accelerator_.strategy().wait_gradients();
      optim::scale_grad(parameters, scale);
    }
    accelerator_.unscale_gradients(optimizer);
    module_->on_before_optimizer_step(optimizer);
    tell(watchers_, &Callback::on_before_optimizer_step);
    if (options_.gradient_clip_val) clip(parameters, *options_.gradient_clip_val);
    optimizer.step();
  }
  gradients_ready_ = false;
  group_weight_ = 0.0;
}

// Of the group of batches, over the ranks; gradients are the mean over the ranks already.
double Run::mean_weight() {
  if (group_weight_ == 0.0 || accelerator_.rank().world_size == 1) return group_weight_;
  const at::Tensor weight = at::scalar_tensor(group_weight_, at::kDouble);
  return accelerator_.reduce(weight, ReduceOp::kMean).item<double>();
}

void Run::clip(const std::vector<NamedTensor>& parameters, double limit) {
  accelerator_.strategy().wait_gradients();
  if (options_.gradient_clip_algorithm == "value") {
    optim::clip_grad_value(parameters, limit);
  } else {
    accelerator_.strategy().clip_grad_norm(parameters, limit, 2.0);
  }
}

void Run::end_epoch() {
  skip_epoch_ = false;
  gradients_ready_ = false;
  log_to(epoch_end_values_);
  module_->on_train_epoch_end();
  log_to(train_values_);
  publish(train_values_);
  publish(epoch_end_values_);
  epoch_end_values_.reset_epoch();
  tell(watchers_, &Callback::on_train_epoch_end);
  ++progress_.epoch;
  progress_.batch = 0;
  progress_.validated = 0;
  limits_.ended_after.reset();
  train_loader_->set_epoch(progress_.epoch);
  tell(writers_, &Callback::on_train_epoch_end);
}

}  // namespace levin::detail
