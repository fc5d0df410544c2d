// The ModuleContext of a run: a module in its training step gets numbers and optimizers here, and logs.

#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::watch_logs() {
  if (!engine_.compiles()) return;
  log_.train_values().set_observer(
      [this](std::string_view name, const at::Tensor& value, const LogOptions& options) {
        return record_log(name, value, options);
      });
}

/// Returns whether the recording sees to it.
bool Run::record_log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  graph::HostPart* recording = engine_.stepping().recording();
  if (recording == nullptr) return false;
  if (!value.defined()) {
    recording->refuse(
        fmt::format("training_step logs '{}' as a host number or a metric; log a tensor", name));
    return false;
  }
  // A copy: what the step writes into the tensor later is not what it logged.
  const at::NoGradGuard no_grad;
  recording->with(
      value.detach().clone(),
      [this, name = std::string(name), options](const at::Tensor& now) {
        if (log_.collecting() != nullptr) log_.collecting()->log_own(name, now, options);
      },
      fmt::format("log {}", name));
  return true;
}

// The module may branch on these values, so a recorded step compares them (`reads`).

int64_t Run::batch_index() const {
  engine_.stepping().reads("batch_index()", [this] { return progress_.batch; });
  return progress_.batch;
}

int64_t Run::current_epoch() const {
  engine_.stepping().reads("current_epoch()", [this] { return progress_.current_epoch(); });
  return progress_.current_epoch();
}

int64_t Run::global_step() const {
  engine_.stepping().reads("global_step()", [this] { return progress_.global_step; });
  return progress_.global_step;
}

at::Tensor Run::all_gather(const at::Tensor& tensor) {
  if (graph::HostPart* recording = engine_.stepping().recording()) {
    recording->refuse("training_step calls all_gather(); call it in a hook after the step");
  }
  const at::NoGradGuard no_grad;
  return engine_.gather(tensor.detach().unsqueeze(0));
}

void Run::set_loss_weight(double weight) {
  if (graph::HostPart* recording = engine_.stepping().recording()) {
    recording->refuse("training_step calls set_loss_weight() with a host number; give it a tensor");
  }
  set_loss_weight(at::scalar_tensor(weight, at::kDouble));
}

void Run::set_loss_weight(const at::Tensor& weight) {
  LEVIN_CHECK(weight.numel() == 1, "trainer.loss_weight",
              "got a loss weight of shape {}, wanted a scalar; take its sum",
              c10::str(weight.sizes()));
  LEVIN_CHECK(module_->automatic_optimization, "trainer.loss_weight",
              "{} uses manual optimization (automatic_optimization = false), which does not divide "
              "by the loss weights of an accumulation window; multiply the losses by their weights "
              "in training_step",
              module_->name());
  for (const PreparedOptimizer& optimizer : optimizers_) {
    LEVIN_CHECK(optimizer.frequency() == 1, "trainer.loss_weight",
                "loss weights do not work with an optimizer of frequency {}; set "
                "accumulate_grad_batches instead",
                optimizer.frequency());
  }
  is_weighed_ = true;
  engine_.stepping().set_loss_weight(weight.detach().reshape({}));
}

OptimizerHandle& Run::optimizer(int64_t index) {
  LEVIN_CHECK(index >= 0 && index < static_cast<int64_t>(optimizers_.size()), "trainer.optimizer",
              "got optimizer({}), but configure_optimizers gave {}", index, optimizers_.size());
  return optimizers_[static_cast<size_t>(index)];
}

void Run::backward(const at::Tensor& loss) {
  call(&Module::on_before_backward, &Callback::on_before_backward, loss);
  const int64_t losses = engine_.stepping().state().losses;
  {
    const ActionScope scope(profile_.get(), [this] { return action("backward"); });
    module_->backward(loss);
  }
  LEVIN_CHECK(
      engine_.stepping().state().losses > losses, "trainer.backward",
      "backward() of {} did not call Module::backward, which computes the gradients for the "
      "strategy of the run; call it there",
      module_->name());
  call(&Module::on_after_backward, &Callback::on_after_backward);
}

void Run::run_backward(const at::Tensor& loss) { engine_.backward(loss); }

Batch Run::to_device(Batch batch) {
  return engine_.device().is_cpu() ? batch : engine_.placement().to_device(batch);
}

}  // namespace levin::detail
