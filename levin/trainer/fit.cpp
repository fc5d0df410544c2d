// The training loop. Read this first: the way of a batch through levin, in the order of its
// folders: data -> module -> strategy -> optim -> observe -> checkpoint.

#include <torch/nn/module.h>

#include "levin/trainer/run.h"

namespace levin::detail {

void Run::train() {
  agree_on_stop();
  if (finished()) return;
  begin_training();
  for (agree_on_stop(); !finished(); agree_on_stop()) train_epoch();
  end_training();
}

void Run::train_epoch() {
  const ActionScope scope(profile_.get(), [] { return "run_training_epoch"; });
  if (!progress_.in_epoch) begin_epoch();
  log_.collect_in(&log_.train_values());
  look_for_end(progress_.batch);
  while (true) {
    look_at_time();
    if (validation_due()) validate_in_fit();
    check_plateaus_by_step();
    if (skip_epoch_ || limits_.epoch_complete(progress_.batch)) break;
    if (at_step_boundary()) {
      agree_on_stop(/*between_steps=*/true);
      engine_.poll_saves();
      if (finished()) return;
      if (boundary_) boundary_->note(progress_, num_updates());
    }
    place_.enter(progress_.batch);
    Batch batch;
    const bool has_batch = !has_ended_here();
    if (has_batch && !next_batch(*train_loader_, "train_dataloader_next", batch)) break;
    look_for_end(progress_.batch + 1);
    train_batch(std::move(batch), progress_.batch);
    if (profile_) profile_->end_step();
  }
  end_epoch();
}

void Run::begin_epoch() {
  place_.enter(RunPlace::Loop::kTraining, progress_.epoch, RunPlace::kStart);
  log_.train_values().reset_epoch();
  log_.collect_in(&log_.epoch_values());
  call(&Module::on_train_epoch_start, &Callback::on_train_epoch_start);
  progress_.in_epoch = true;
  step_.check_next();
}

// Callbacks see an empty batch too: those that ask the other ranks do so in the same steps.
void Run::train_batch(Batch batch, int64_t index) {
  // data
  const ActionScope scope(profile_.get(), [] { return "run_training_batch"; });
  in_step_ = true;
  const bool has_batch = !batch.empty();
  if (has_batch) batch = transfer(std::move(batch));
  begin_samples(has_batch ? batch.size() - train_loader_->added() : 0);
  listeners_.tell_watchers(&Callback::on_train_batch_start, batch, index);
  if (has_batch) {
    call_module(&Callback::on_train_batch_start,
                [&] { skip_epoch_ = !module_->on_train_batch_start(batch, index); });
  }
  if (skip_epoch_) {
    in_step_ = false;
    return;
  }

  // module, strategy and optim
  const int64_t updates = updates_so_far();
  const at::Tensor loss = part_sizes_ ? train_in_parts(batch, index) : train_on(batch, index);
  updated_ = updates_so_far() > updates;
  engine_.placement().end_batch();
  if (updated_) ++progress_.global_step;
  ++progress_.batch;
  if (limits_.epoch_complete(progress_.batch)) move_schedules_by_epoch();
  in_step_ = false;
  if (must_roll_back()) roll_back();

  // observe and checkpoint
  if (has_batch) {
    call_module(&Callback::on_train_batch_end,
                [&] { module_->on_train_batch_end(loss, batch, index); });
  }
  listeners_.tell_watchers(&Callback::on_train_batch_end, loss, batch, index);
  if (updated_ && should_log()) log_.write_row(/*on_all_ranks=*/logs_by_step());
  tell_of_monitors();
  listeners_.tell_writers(&Callback::on_train_batch_end, loss, batch, index);
}

void Run::begin_samples(int64_t samples) {
  samples_ = samples;
  log_.begin_batch(log_.train_values(), samples);
}

at::Tensor Run::train_on(const Batch& batch, int64_t index) {
  const WindowScope window(engine_.stepping(), window_place(index));
  return compiled_step(batch, index);
}

// A step that is replayed does not come to take_step.
at::Tensor Run::compiled_step(const Batch& batch, int64_t index) {
  if (!engine_.compiles()) return take_step(batch, index);
  StepCall call(batch);
  for (const PreparedOptimizer& optimizer : optimizers_) {
    call.guards.push_back(
        {"the optimizer's place in its period", progress_.global_step % optimizer.frequency()});
  }
  if (module_->takes_batch_index()) call.arguments.push_back({"batch_index", index});
  call.step = progress_.global_step;
  return step_(call, [&] { return std::vector{take_step(batch, index)}; })[0];
}

at::Tensor Run::take_step(const Batch& batch, int64_t index) {
  if (steps_by_closure_) return take_closure_step(batch, index);

  // module
  is_weighed_ = false;
  const at::Tensor loss = batch.empty() ? at::Tensor() : training_step(batch, index);
  if (!module_->automatic_optimization) return loss;
  if (is_uneven_ && loss.defined()) weigh_by_samples(batch);

  // strategy and optim
  Stepping& stepping = engine_.stepping();
  const bool gives_gradients = stepping.gives_gradients(loss);
  const bool exchanges = gives_gradients || stepping.is_awaited();
  if (exchanges && !stepping.has_gradients()) begin_window();
  if (gives_gradients) {
    backward(loss);
  } else if (exchanges) {
    stepping.join_exchange();
  }
  if (stepping.sync_gradients() && stepping.has_gradients()) update();
  return loss;
}

// An optimizer such as LBFGS computes the loss several times in a step.
at::Tensor Run::take_closure_step(const Batch& batch, int64_t index) {
  const at::Tensor loss = optimizers_.front().step([&] {
    begin_window();
    at::Tensor evaluated = training_step(batch, index);
    if (evaluated.defined()) backward(evaluated);
    return evaluated;
  });
  engine_.stepping().end_window(/*counts=*/true);
  return loss;
}

at::Tensor Run::training_step(const Batch& batch, int64_t index) {
  const ActionScope scope(profile_.get(), [this] { return action("training_step"); });
  const ForwardGuards guards = engine_.forward_guards();
  return module_->training_step(batch, index);
}

void Run::begin_window() {
  for (PreparedOptimizer& optimizer : optimizers_) {
    if (progress_.global_step % optimizer.frequency() != 0) continue;
    module_->on_before_zero_grad(optimizer);
    listeners_.tell_watchers(&Callback::on_before_zero_grad);
    module_->optimizer_zero_grad(optimizer);
  }
}

void Run::update() {
  Stepping& stepping = engine_.stepping();
  const bool counts = stepping.window_counts();
  const int64_t calls = stepping.state().calls;
  bool is_due = false;
  for (PreparedOptimizer& optimizer : optimizers_) {
    if (!counts || (progress_.global_step + 1) % optimizer.frequency() != 0) continue;
    is_due = true;
    stepping.finish_gradients(optimizer.optimizer());
    module_->on_before_optimizer_step(optimizer);
    listeners_.tell_watchers(&Callback::on_before_optimizer_step);
    module_->configure_gradient_clipping(optimizer, options_.gradient_clip_val,
                                         options_.gradient_clip_algorithm);
    const ActionScope scope(profile_.get(), [this] { return action("optimizer_step"); });
    module_->optimizer_step(optimizer);
  }
  // A module's optimizer_step may leave the step out.
  const bool stepped = !is_due || stepping.state().calls > calls;
  stepping.end_window(counts && stepped);
}

void Run::end_epoch() {
  if (progress_.validated == 0) tell_of_no_validation();
  place_.enter(RunPlace::kEnd);
  move_schedules_by_epoch();
  skip_epoch_ = false;
  engine_.stepping().drop_window();
  log_.collect_in(&log_.epoch_values());
  call_module(&Callback::on_train_epoch_end, [&] { module_->on_train_epoch_end(); });
  log_.collect_in(&log_.train_values());
  log_.publish({&log_.train_values(), &log_.epoch_values()});
  log_.epoch_values().reset_epoch();
  listeners_.tell_watchers(&Callback::on_train_epoch_end);
  check_plateaus_by_epoch();
  progress_.begin_next_epoch();
  limits_.begin_epoch(progress_.epoch);
  train_loader_->set_epoch(progress_.epoch);
  reload_loaders();
  // The checkpoint resumes with the next epoch; its hooks see the epoch that has ended, as in
  // Lightning.
  const Active ending(progress_.ending);
  listeners_.tell_writers(&Callback::on_train_epoch_end);
}

}  // namespace levin::detail
