#pragma once
// A task that a strategy trains, on XLA devices or without them.

#include <memory>
#include <string>
#include <vector>

#include "levin/accelerator/engine/batch_placement.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/compile/compiled.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"
#include "levin/xla/device/runtime.h"
#include "levin/xla/device/step.h"
#include "tests/strategy/tasks.h"
#include "tests/support/scratch.h"

namespace levin::test {

struct XlaCase {
  std::string name;
  Task (*task)();
  std::string optimizer;
};

inline void PrintTo(const XlaCase& c, std::ostream* out) { *out << c.name; }

inline OptimizerConfig optimizer_named(const std::string& name) {
  if (name == "adam") return optim::adam({.lr = 1e-3});
  if (name == "adamw") return optim::adamw({.lr = 1e-3, .weight_decay = 0.1});
  return optim::sgd({.lr = 0.1, .momentum = 0.9});
}

/// A task under a strategy; on XLA its steps are recorded, as the engine does it.
struct Training {
  Training(const XlaCase& c, std::shared_ptr<xla::Runtime> on = nullptr,
           const comm::ProcessGroup& group = {})
      : runtime(std::move(on)),
        task((torch::manual_seed(1), c.task())),
        strategy(make_strategy("auto", {.group = group, .xla = runtime})) {
    const at::Device device = runtime ? runtime->device() : at::Device(at::kCPU);
    strategy->setup(*task.module, device);
    optimizer =
        strategy->build_optimizer(optimizer_named(c.optimizer), named_parameters(*task.module));
    if (!runtime) return;
    optimizer->set_capturable(true);
    compiled = std::make_unique<graph::Compiled>(
        "the step", graph::CompiledOptions{.engine = xla::make_engine(runtime)});
  }

  at::Tensor step_eagerly(const at::Tensor& inputs) {
    const SyncBatchNormGuard over_ranks(synced);
    optimizer->zero_grad();
    const at::Tensor loss = task.loss(inputs);
    strategy->backward(loss, /*synchronize=*/true);
    strategy->update(*optimizer);
    return loss.detach();
  }

  /// The rank's part of the batch.
  at::Tensor inputs(int64_t number) const {
    const DataSlice slice = strategy->slice();
    return task.inputs(number).chunk(slice.world_size)[static_cast<size_t>(slice.rank)];
  }

  double step(int64_t number) {
    if (!runtime) return step_eagerly(inputs(number)).item<double>();
    const Batch batch =
        BatchPlacement(runtime->device(), runtime).to_device(Batch({{"x", inputs(number)}}));
    const at::Tensor& x = batch["x"];
    optimizer->before_replay();
    return (*compiled)({.inputs = {x}, .names = {"x"}},
                       [&] {
                         std::vector<at::Tensor> losses = {step_eagerly(x)};
                         if (auto* recording = compiled->recording()) {
                           recording->after(
                               [this, moved = optimizer->moved()] { optimizer->replayed(moved); });
                         }
                         return losses;
                       })[0]
        .item<double>();
  }

  /// As on disk: nothing is shared with the module that goes.
  State saved(const Scratch& scratch) const {
    State state;
    state.set("module", module_state(*task.module)).set("optimizer", optimizer->state_dict());
    save_checkpoint(scratch.path() / "saved", {.training = state});
    return load_checkpoint(scratch.path() / "saved").training;
  }
  void load(const State& state) {
    load_module_state(*task.module, state.child("module"));
    optimizer->load_state_dict(state.child("optimizer"));
  }

  std::shared_ptr<xla::Runtime> runtime;
  Task task;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<graph::Compiled> compiled;
  comm::ProcessGroup* synced = nullptr;  ///< batch norm goes over its ranks
};

}  // namespace levin::test
