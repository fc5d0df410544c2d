#pragma once
// The strategies' small networks as runs on the card: as a Module of a Trainer, and by a loop over an Accelerator.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/data/sources/sources.h"
#include "levin/graph/compile/compiled.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "tests/gpu/device.h"
#include "tests/strategy/tasks.h"
#include "tests/support/scratch.h"
#include "tests/trainer/small_run.h"

namespace levin::test::gpu {

constexpr int64_t kSteps = 10;

/// All batches of a task one after another: "x" [steps * kGlobalBatch, ...].
inline DatasetPtr data_of(const Task& task, int64_t steps = kSteps) {
  std::vector<at::Tensor> batches;
  for (int64_t step = 0; step < steps; ++step) batches.push_back(task.inputs(step));
  return data::tensors({{"x", torch::cat(batches)}});
}

/// The task's weights are the same each time.
inline Task built(Task (*make)()) {
  torch::manual_seed(3);
  return make();
}

inline OptimizerConfig sgd_with_momentum() { return optim::sgd({.lr = 0.05, .momentum = 0.9}); }

/// What a run leaves, on the CPU.
struct Trained {
  std::vector<double> losses;
  State weights;
  graph::CompiledReport report = {};  ///< with --compile replay
};

/// Parameters and buffers, whole.
inline State on_cpu(const torch::nn::Module& module) {
  State copies;
  const State state = full(module);
  for (const auto& [name, value] : state.values()) {
    copies.set(name, state.tensor(name).detach().cpu().clone());
  }
  return copies;
}

/// "" where losses and weights are as near as that.
inline std::string difference(const Trained& got, const Trained& wanted, double tolerance) {
  const std::string losses = off_by(torch::tensor(got.losses, at::kDouble),
                                    torch::tensor(wanted.losses, at::kDouble), tolerance);
  if (!losses.empty()) return "the losses: " + losses;
  for (const auto& [name, value] : wanted.weights.values()) {
    const std::string off =
        off_by(got.weights.tensor(name), wanted.weights.tensor(name), tolerance);
    if (!off.empty()) return name + " " + off;
  }
  return "";
}

/// The task as a Module.
struct TaskModule : levin::Module {
  Task task;
  OptimizerConfig optimizer = sgd_with_momentum();
  std::vector<at::Tensor> losses;    ///< read at the end: a read waits for the card
  std::vector<std::string> devices;  ///< of the batches that steps got

  explicit TaskModule(Task task) : task(std::move(task)) {
    register_module("net", this->task.module);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = task.loss(batch["x"]);
    log("loss", loss);
    return loss;
  }
  // Replayed steps too come here.
  void on_train_batch_end(const at::Tensor& loss, const Batch& batch, int64_t) override {
    devices.push_back(batch["x"].device().str());
    losses.push_back(loss.detach());
  }
  OptimizerConfig configure_optimizers() override { return optimizer; }
};

inline std::vector<double> numbers(const std::vector<at::Tensor>& losses) {
  std::vector<double> all;
  for (const at::Tensor& loss : losses) all.push_back(loss.item<double>());
  return all;
}

/// accelerator: as --accelerator takes it; more: other options.
inline Trained trained_by_trainer(Task (*make)(), const std::string& accelerator,
                                  const std::function<void(TrainerOptions&)>& more = {}) {
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = accelerator;
  options.devices = 1;
  options.max_epochs = 1;
  options.enable_checkpointing = false;
  if (more) more(options);
  const auto module = std::make_shared<TaskModule>(built(make));
  Trainer trainer(options);
  trainer.fit(module, DataLoader(data_of(module->task), {.batch_size = kGlobalBatch}));
  return {numbers(module->losses), on_cpu(*module->task.module), trainer.compile_report()};
}

inline Trained trained_by_accelerator(Task (*make)(), AcceleratorOptions options) {
  const Task task = built(make);
  Accelerator accelerator(std::move(options));
  auto [model, optimizer, loader] = accelerator.prepare(
      task.module, sgd_with_momentum(), DataLoader(data_of(task), {.batch_size = kGlobalBatch}));
  std::vector<at::Tensor> losses;
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto scope = accelerator.forward_scope();
      loss = task.loss(batch["x"]);
    }
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.detach());
  }
  return {.losses = numbers(losses), .weights = on_cpu(*task.module)};
}

}  // namespace levin::test::gpu
