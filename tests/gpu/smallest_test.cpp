// 8: a few small steps of all that has to do with streams, events and the card's allocator, for
// compute-sanitizer (scripts/gpu_checks.txt), under which a kernel takes a hundred times as long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/strategy/strategy.h"
#include "tests/gpu/tasks.h"

namespace levin::test::gpu {
namespace smallest_test {
namespace {

class Gpu8Smallest : public OnGpu {};

/// Pinned batches under way, a step, a save behind the next one.
TEST_F(Gpu8Smallest, TrainsFromALoaderWithWorkers) {
  const Scratch scratch;
  Accelerator accelerator({.accelerator = gpu::accelerator()});
  const Task task = built(mlp);
  auto [model, optimizer, loader] = accelerator.prepare(
      task.module, optim::adamw({.lr = 1e-3}),
      DataLoader(off_disk(data_of(task, 3)), {.batch_size = kGlobalBatch, .num_workers = 1}));
  double loss_of_last = 0;
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    const at::Tensor loss = task.loss(batch["x"]);
    accelerator.backward(loss);
    accelerator.clip_grad_norm(1.0);
    optimizer.step();
    loss_of_last = loss.item<double>();
    accelerator.save_state(scratch / "state", {.async_save = true});
  }
  accelerator.finish_saves();
  EXPECT_GT(loss_of_last, 0.0);
}

TEST_F(Gpu8Smallest, ReplaysAGraph) {
  const auto function = [](const at::Tensor& x) {
    return torch::dropout(x.matmul(x.t()).relu(), 0.5, true).sum(1);
  };
  const at::Tensor x = torch::randn({8, 8}).to(device());
  graph::Replay replay(trace([&](const at::Tensor& in) { return function(in); }, {x}).graph());
  for (uint64_t call = 0; call < 4; ++call) {
    torch::manual_seed(call);
    const at::Tensor wanted = function(x);
    torch::manual_seed(call);
    EXPECT_TRUE(at::equal(replay({x}).front(), wanted)) << "call " << call;
  }
}

TEST_F(Gpu8Smallest, TrainsUnderFsdpWithCheckpoints) {
  struct Net : torch::nn::Module {
    torch::nn::Linear first{nullptr}, second{nullptr};
    Net() {
      first = register_module("first", torch::nn::Linear(6, 8));
      second = register_module("second", torch::nn::Linear(8, 3));
    }
    at::Tensor forward(const at::Tensor& x) {
      const auto block = [this](const at::Tensor& in) {
        return torch::dropout(first(in).relu(), 0.5, is_training());
      };
      return second(activation_checkpoint(block, x));
    }
  };
  const auto net = std::make_shared<Net>();
  const auto strategy =
      make_strategy("fsdp", {.fsdp = {.unit_mb = 1e-4}, .on_gpu = device().is_cuda()});
  strategy->setup(*net, device());
  const auto optimizer = strategy->build_optimizer(sgd_with_momentum(), named_parameters(*net));
  double first = 0, last = 0;
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(4);
    optimizer->zero_grad();
    at::Tensor loss;
    {
      const auto scope = strategy->compute_scope();
      loss = net->forward(torch::ones({4, 6}, device())).square().mean();
    }
    strategy->backward(loss, true);
    strategy->update(*optimizer);
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace smallest_test
}  // namespace levin::test::gpu
