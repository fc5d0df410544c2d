// The training step under compile = "replay": what it depends on, and what it does on the host.

#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::watch_logs() {
  if (!accelerator_.compiles()) return;
  log_.train_values().set_observer(
      [this](std::string_view name, const at::Tensor& value, const LogOptions& options) {
        return record_log(name, value, options);
      });
}

at::Tensor Run::compiled_step(const Batch& batch, int64_t index) {
  if (!accelerator_.compiles()) return take_step(batch, index);
  std::vector<NamedTensor> inputs;
  inputs.reserve(batch.fields().size());
  for (const auto& [name, tensor] : batch) inputs.push_back({name, tensor});
  std::vector<graph::Guard> guards, arguments;
  guards.reserve(optimizers_.size());
  for (const PreparedOptimizer& optimizer : optimizers_) {
    guards.push_back(
        {"the optimizer's place in its period", progress_.global_step % optimizer.frequency()});
  }
  if (module_->takes_batch_index()) arguments.push_back({"batch_index", index});
  return step_(
      inputs, guards, [&] { return std::vector{take_step(batch, index)}; }, arguments,
      progress_.global_step)[0];
}

/// Whether the recording sees to it.
bool Run::record_log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  graph::HostPart* recording = accelerator_.stepping().recording();
  if (recording == nullptr) return false;
  if (!value.defined()) {
    recording->refuse(fmt::format(
        "training_step logs '{}', a number of the host or a metric; log a tensor", name));
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

// What the module asks for may decide what it does.

int64_t Run::batch_index() const {
  accelerator_.stepping().reads("batch_index()", [this] { return progress_.batch; });
  return progress_.batch;
}

int64_t Run::current_epoch() const {
  accelerator_.stepping().reads("current_epoch()", [this] { return progress_.current_epoch(); });
  return progress_.current_epoch();
}

int64_t Run::global_step() const {
  accelerator_.stepping().reads("global_step()", [this] { return progress_.global_step; });
  return progress_.global_step;
}

void Run::set_loss_weight(double weight) {
  if (graph::HostPart* recording = accelerator_.stepping().recording()) {
    recording->refuse(
        "training_step calls set_loss_weight() with a number of the host; give it a "
        "tensor");
  }
  set_loss_weight(at::scalar_tensor(weight, at::kDouble));
}

void Run::set_loss_weight(const at::Tensor& weight) {
  LEVIN_CHECK(weight.numel() == 1, "trainer.loss_weight",
              "got a loss weight of shape {}, wanted one number; take its sum",
              c10::str(weight.sizes()));
  LEVIN_CHECK(module_->automatic_optimization, "trainer.loss_weight",
              "{} optimizes by itself (automatic_optimization = false), so nobody divides by the "
              "weights of an accumulation window; weigh the losses in training_step",
              module_->name());
  for (const PreparedOptimizer& optimizer : optimizers_) {
    LEVIN_CHECK(optimizer.frequency() == 1, "trainer.loss_weight",
                "gradients that wait for {} steps cannot be divided by the weights of each; set "
                "accumulate_grad_batches in place of the optimizer's frequency",
                optimizer.frequency());
  }
  accelerator_.stepping().set_loss_weight(weight.detach().reshape({}));
}

}  // namespace levin::detail
