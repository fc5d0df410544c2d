// Rollback: after a NaN loss or a loss spike the run goes back to its newest checkpoint, and on with the batches after
// the bad one.

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run.h"

namespace levin::detail {

// A step with a finite loss may still leave NaN weights. They are found here, before a checkpoint can be saved of them.
bool Run::must_roll_back() {
  const LossGuardOptions& guard = options_.engine.loss_guard;
  const bool after_nan = guard.nan_policy == "rollback";
  if ((!after_nan && guard.spike_policy != "rollback") || !at_step_boundary()) return false;
  const bool wants =
      engine_.stepping().state().wants_rollback || (after_nan && updated_ && !weights_are_finite());
  return engine_.num_processes() == 1 ? wants : engine_.world().any(wants);
}

bool Run::weights_are_finite() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const PreparedOptimizer& optimizer : optimizers_) {
    for (const NamedTensor& parameter : optimizer.optimizer().parameters()) {
      const at::Tensor own = shard::own_values(parameter.tensor).detach();
      if (own.numel() > 0) values.push_back(own);
    }
  }
  if (values.empty()) return true;
  std::vector<at::Tensor> largest =
      at::_foreach_norm(values, std::numeric_limits<double>::infinity());
  for (at::Tensor& one : largest) one = one.to(engine_.device(), at::kFloat);
  return at::isfinite(at::stack(largest)).all().item<bool>();
}

std::string Run::newest_checkpoint() const {
  namespace fs = std::filesystem;
  std::string newest = resumed_from_;
  fs::file_time_type newest_time = fs::file_time_type::min();
  for (const auto& callback : listeners_.all()) {
    const auto* writer = dynamic_cast<const ModelCheckpoint*>(callback.get());
    if (writer == nullptr || writer->last_model_path().empty()) continue;
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(writer->last_model_path(), error);
    if (error || time < newest_time) continue;
    const State training = CheckpointReader(writer->last_model_path()).training_scalars();
    if (training.contains("weights_only")) continue;
    newest = writer->last_model_path();
    newest_time = time;
  }
  return newest;
}

void Run::roll_back() {
  const int64_t most = options_.engine.loss_guard.max_rollbacks;
  LEVIN_CHECK(progress_.rollbacks < most, "trainer.rollback",
              "batch {} of epoch {} asks for one more rollback, but the run has made its {} "
              "(max_rollbacks); lower the learning rate, clip the gradients, or raise "
              "--max-rollbacks",
              progress_.batch - 1, progress_.epoch, most);
  engine_.finish_saves();
  State found;  // by rank 0, for all
  engine_.all_or_throw([&] {
    if (engine_.is_main_process()) found.set("folder", newest_checkpoint());
  });
  const std::string folder = engine_.broadcast_object(found).text("folder");
  LEVIN_CHECK(!folder.empty(), "trainer.rollback",
              "batch {} of epoch {} asks for a rollback, but this run has saved no checkpoint yet; "
              "save one earlier (every_n_train_steps of levin::model_checkpoint), or set "
              "--nan-policy and --spike-policy skip",
              progress_.batch - 1, progress_.epoch);
  Checkpoint checkpoint;
  engine_.all_or_throw([&] { checkpoint = engine_.read_checkpoint(folder); });
  const State& training = checkpoint.training;
  Progress then;
  then.load_state_dict(training.child("progress"));

  loading_ = fmt::format("rolling back to '{}'", folder);
  engine_.roll_back_to(checkpoint);
  // Schedules by epoch have the rates of the loaders' epoch, or of the next one after its last batch.
  engine_.stepping().end_epoch(progress_.epoch + (limits_.epoch_complete(progress_.batch) ? 1 : 0));
  log_.train_values().reset_epoch();
  log_.epoch_values().reset_epoch();
  if (then.epoch == progress_.epoch && then.in_epoch) {
    load_values(training, "train_values", log_.train_values());
    load_values(training, "epoch_values", log_.epoch_values());
  }
  if (training.contains("waiting_gradients")) {
    load_waiting_gradients(training.child("waiting_gradients"));
  }
  listeners_.load_watchers(training.child("callbacks"));
  module_->on_load_checkpoint(training.child("user"));
  listeners_.tell_watchers(&Callback::on_load_checkpoint, training);
  loading_.clear();

  const int64_t before = std::exchange(progress_.global_step, then.global_step);
  ++progress_.rollbacks;
  updated_ = false;
  step_.check_next();
  log::warn(
      "trainer: went back from step {} to step {}, to '{}', and goes on with batch {} of epoch {} "
      "(rollback {} of {})",
      before, then.global_step, folder, progress_.batch, progress_.epoch, progress_.rollbacks,
      most);
}

}  // namespace levin::detail
