// The training step under compile = "replay": what it depends on, and what it does on the host.

#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

void Run::watch_logs() {
  if (!accelerator_.compiles()) return;
  train_values_.set_observer(
      [this](std::string_view name, const at::Tensor& value, const LogOptions& options) {
        return record_log(name, value, options);
      });
}

at::Tensor Run::compiled_step(const Batch& batch, int64_t index) {
  if (!accelerator_.compiles()) return take_step(batch, index);
  std::vector<NamedTensor> inputs;
  for (const auto& [name, tensor] : batch) inputs.push_back({name, tensor});
  return step_(inputs, step_guards(index), [&] {
    const at::Tensor loss = take_step(batch, index);
    record_host_part();
    return std::vector{loss};
  })[0];
}

std::vector<graph::Guard> Run::step_guards(int64_t index) const {
  std::vector<graph::Guard> guards = {
      {"whether the group of batches has begun", static_cast<double>(gradients_ready_)},
      {"batches of the group", static_cast<double>(limits_.group_size(index))},
      {"whether the batch ends its group", static_cast<double>(limits_.group_complete(index + 1))},
      {"by what the epoch's end cut the group short", cut_short()}};
  for (const PreparedOptimizer& optimizer : optimizers_) {
    guards.push_back({"the optimizer's place in its period",
                      static_cast<double>(progress_.global_step % optimizer.frequency())});
  }
  return guards;
}

void Run::record_host_part() {
  graph::Recording* recording = accelerator_.stepping().recording();
  if (recording == nullptr) return;
  recording->after([this, ready = gradients_ready_, updated = updated_] {
    gradients_ready_ = ready;
    updated_ = updated;
  });
}

/// Whether the recording sees to it.
bool Run::record_log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  graph::Recording* recording = accelerator_.stepping().recording();
  if (recording == nullptr) return false;
  if (!value.defined()) {
    recording->refuse(fmt::format(
        "training_step logs '{}', a number of the host or a metric; log a tensor", name));
    return false;
  }
  // A copy: what the step writes into the tensor later is not what it logged.
  const at::NoGradGuard no_grad;
  recording->with(value.detach().clone(),
                  [this, name = std::string(name), options](const at::Tensor& now) {
                    if (logged_ != nullptr) logged_->log_own(name, now, options);
                  });
  return true;
}

// What the module asks for may decide what it does.

int64_t Run::current_epoch() const {
  if (graph::Recording* recording = accelerator_.stepping().recording()) {
    recording->depends_on("current_epoch()",
                          [this] { return static_cast<double>(progress_.epoch); });
  }
  return progress_.epoch;
}

int64_t Run::global_step() const {
  if (graph::Recording* recording = accelerator_.stepping().recording()) {
    recording->depends_on("global_step()",
                          [this] { return static_cast<double>(progress_.global_step); });
  }
  return progress_.global_step;
}

void Run::set_loss_weight(double weight) {
  if (graph::Recording* recording = accelerator_.stepping().recording()) {
    recording->refuse(
        "training_step calls set_loss_weight() with a number of the host; give it a "
        "tensor");
  }
  loss_weight_ = at::scalar_tensor(weight, at::kDouble);
}

void Run::set_loss_weight(const at::Tensor& weight) {
  LEVIN_CHECK(weight.numel() == 1, "trainer.loss_weight",
              "got a loss weight of shape {}, wanted one number; take its sum",
              c10::str(weight.sizes()));
  loss_weight_ = weight.detach().reshape({});
}

}  // namespace levin::detail
