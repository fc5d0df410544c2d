#pragma once
// What the tables of strategies compare: the training of a task under a strategy over ranks, alone, broken off,
// recorded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/random.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/compile/compiled.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/strategy/tasks.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"

namespace levin::test::table {

struct Case {
  std::string name;
  std::string strategy = "ddp";
  std::string backend = "shm";
  Task (*task)() = mlp;
  std::string optimizer = "sgd";
  bool in_double = false;
  int64_t accumulate = 1;
  DdpOptions ddp = {};
  FsdpOptions fsdp = {};
  void (*wrap)(torch::nn::Module&) = nullptr;  ///< marks units
  std::vector<int64_t> sizes = {1, 2, 3, 4};
  bool replayed = false;  ///< the step is recorded, and from the fourth on replayed
  int64_t steps = 20;
  int64_t resumed_ranks = 2;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline OptimizerConfig optimizer_of(const Case& c) {
  if (c.optimizer == "adam")
    return optim::adam({.lr = 1e-2, .eps = 1e-4});  // no step of rounding errors
  return optim::sgd({.lr = 0.1, .momentum = 0.9});
}

/// A strategy with one module and one optimizer.
struct Setup {
  Setup(const Case& c, const comm::ProcessGroup& group)
      : task((torch::manual_seed(1 + group.rank()), c.task())),  // rank 0's weights must win
        group(group),
        strategy(make_strategy(
            c.strategy, {.group = group, .ddp = c.ddp, .fsdp = c.fsdp, .recordable = c.replayed})) {
    if (c.in_double) task.module->to(at::kDouble);
    if (c.wrap != nullptr) c.wrap(*task.module);
    strategy->setup(*task.module, at::kCPU);
    optimizer = strategy->build_optimizer(optimizer_of(c), named_parameters(*task.module));
    optimizer->set_capturable(c.replayed);
  }

  /// The mean loss of this rank.
  double step(const Case& c, int64_t number) {
    const auto [rank, world_size] = strategy->slice();
    const at::Tensor mine = task.inputs(number).slice(0, rank, kGlobalBatch, world_size);
    const std::vector<at::Tensor> losses =
        c.replayed ? replayed_losses(c, mine) : losses_of(c, mine);
    double total = 0;
    for (const at::Tensor& loss : losses) total += loss.item<double>();
    return total;
  }

  std::vector<at::Tensor> losses_of(const Case& c, const at::Tensor& mine) {
    optimizer->zero_grad();
    const SyncBatchNormGuard batch_norm(group.size() > 1 ? &group : nullptr);
    const auto parts = mine.chunk(c.accumulate);
    std::vector<at::Tensor> losses;
    for (size_t i = 0; i < parts.size(); ++i) {
      {
        const auto whole = strategy->compute_scope();
        losses.push_back(task.loss(parts[i]) / c.accumulate);
      }
      strategy->backward(losses.back(), i + 1 == parts.size());
    }
    strategy->update(*optimizer);
    return losses;
  }

  std::vector<at::Tensor> replayed_losses(const Case& c, const at::Tensor& mine) {
    graph::Conditions conditions{.inputs = {mine}, .names = {"inputs"}};
    for (const NamedTensor& parameter : optimizer->parameters()) {
      conditions.inputs.push_back(parameter.tensor.grad());
      conditions.names.push_back(parameter.name);
    }
    strategy->before_replay();
    optimizer->before_replay();
    return compiled(conditions, [&] {
      std::vector<at::Tensor> losses = losses_of(c, mine);
      if (auto* recording = compiled.recording()) {
        recording->after([this, moved = optimizer->moved()] { optimizer->replayed(moved); });
      }
      return losses;
    });
  }

  State state() const {
    State state;
    state.set("module", module_state(*task.module))
        .set("optimizer", optimizer->state_dict())
        .set("strategy", strategy->state_dict());
    return state;
  }
  void load(const State& state) {
    load_module_state(*task.module, state.child("module"));
    optimizer->load_state_dict(state.child("optimizer"));
    strategy->load_state_dict(state.child("strategy"));
  }

  Task task;
  comm::ProcessGroup group;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<optim::Optimizer> optimizer;
  graph::Compiled compiled{"the step", {.state = [this] {
                             std::vector<NamedTensor> all = named_parameters(*task.module);
                             for (NamedTensor& each : strategy->recorded_state()) {
                               all.push_back(std::move(each));
                             }
                             return all;
                           }}};
};

/// Trains and leaves the weights of each rank and rank 0's mean losses in a folder.
inline void train_case(const Case& c, const comm::ProcessGroup& group,
                       const std::filesystem::path& to, int64_t break_after = 0) {
  auto setup = std::make_unique<Setup>(c, group);
  at::Tensor losses = at::zeros({c.steps}, at::kDouble);
  for (int64_t step = 0; step < c.steps; ++step) {
    if (break_after > 0 && step == break_after) {
      // As on disk: nothing may be shared with the module that goes.
      save_together(to / "state", {.training = setup->state()}, group);
      setup.reset();
      setup = std::make_unique<Setup>(c, group);
      setup->load(load_checkpoint(to / "state").training);
    }
    losses[step] = setup->step(c, step);
  }
  const int64_t replayed = num_replayed(setup->compiled.report());
  TORCH_CHECK(!c.replayed || replayed >= c.steps - break_after - 4, replayed, " steps replayed");
  setup->group.all_reduce(losses, ReduceOp::kMean);
  State all = full(*setup->task.module);
  all.set("losses", losses);
  save_weights(to / (std::to_string(group.rank()) + ".safetensors"), all);
}

inline std::string compare(const State& got, const State& wanted, double tolerance,
                           const std::string& only = "") {
  for (const auto& [name, value] : wanted.values()) {
    if (!only.empty() && name != only) continue;
    const at::Tensor& right = wanted.tensor(name);
    const double off = (got.tensor(name) - right).abs().max().item<double>();
    const double size = std::max(1.0, right.abs().max().item<double>());  // of float32 losses
    if (!(off <= tolerance * size)) return name + " is off by " + std::to_string(off * 1e9) + "e-9";
  }
  return "";
}

inline State weights_in(const std::filesystem::path& folder, int64_t rank) {
  return load_weights(folder / (std::to_string(rank) + ".safetensors"));
}

/// The same training in one process.
inline State trained_alone(Case c) {
  c.strategy = "single";
  c.accumulate = 1;
  c.ddp = {};
  c.fsdp = {};
  const Scratch scratch;
  const auto words = run_world(1, [&](int64_t, const std::filesystem::path&) {
    train_case(c, {}, scratch.path());
    return "";
  });
  EXPECT_THAT(words, ::testing::Each(""));
  State weights;  // off the file, which goes
  const State mapped = weights_in(scratch.path(), 0);
  for (const auto& [name, value] : mapped.values()) weights.set(name, mapped.tensor(name).clone());
  return weights;
}

/// Trains for some steps, from where a folder's run stands if there is one, and saves to it.
inline void train_part(const Case& c, const comm::ProcessGroup& group,
                       const std::filesystem::path& folder, int64_t from, int64_t to) {
  Setup setup(c, group);
  if (from > 0) setup.load(load_checkpoint(folder / std::to_string(from)).training);
  for (int64_t step = from; step < to; ++step) setup.step(c, step);
  save_together(folder / std::to_string(to), {.training = setup.state()}, group);
  const State all = full(*setup.task.module);
  if (group.rank() == 0) save_weights(folder / "0.safetensors", all);
}

class StrategyTable : public ::testing::TestWithParam<Case> {};
/// Of recorded steps.
class ReplayedStrategy : public ::testing::TestWithParam<Case> {};

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

}  // namespace levin::test::table
