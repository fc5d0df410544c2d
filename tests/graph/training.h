#pragma once
// What a replayed training step is held to: losses, weights, gradients and buffers of eager steps.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>

#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"

namespace levin::test {

/// A network with all that has state of its own, and its optimizer.
struct Trainee {
  torch::nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;

  explicit Trainee(const OptimizerConfig& config, bool convolutions = false,
                   at::Device device = at::kCPU) {
    torch::manual_seed(7);
    if (convolutions) {
      net = torch::nn::Sequential(torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {1, 8, 8})),
                                  torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
                                  torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                                  torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                                  torch::nn::Linear(64, 5));
    } else {
      net = torch::nn::Sequential(
          torch::nn::Linear(64, 32), torch::nn::BatchNorm1d(32), torch::nn::GELU(),
          torch::nn::Dropout(0.3), torch::nn::Linear(32, 32),
          torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})), torch::nn::Linear(32, 5));
    }
    net->to(device);
    optimizer = optim::build_optimizer(config, named_parameters(*net));
  }
  at::Tensor step(const at::Tensor& x, const at::Tensor& y) {
    optimizer->zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    backward(loss);
    optimizer->step();
    return loss;
  }
};

inline Tensors batch_of(int64_t number, at::Device device = at::kCPU) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
  return {torch::randn({16, 64}, random).to(device),
          torch::randint(0, 5, {16}, random, torch::kLong).to(device)};
}

using MakeReplay = std::function<graph::Replay(const graph::Graph&)>;

/// Of steps whose learning rate falls. The first is as it is (the optimizer has its state then),
/// the second recorded; none is replayed without make_replay.
inline Tensors losses_of(Trainee& trainee, const MakeReplay& make_replay, at::Device device) {
  constexpr int64_t kSteps = 200;
  torch::manual_seed(11);
  if (make_replay) trainee.optimizer->set_capturable(true);
  Tensors losses;
  std::optional<graph::Replay> replay;
  optim::Moved moved;
  optim::ParameterGroup& group = trainee.optimizer->groups().front();
  const double lr = group.lr;
  for (int64_t i = 0; i < kSteps; ++i) {
    group.lr = lr * (1 - static_cast<double>(i) / kSteps);
    const Tensors batch = batch_of(i, device);
    if (make_replay && i == 1) {
      const auto module =
          levin::trace([&](const at::Tensor& x,
                           const at::Tensor& y) { return losses.emplace_back(trainee.step(x, y)); },
                       batch);
      replay.emplace(make_replay(module.graph()));
      moved = trainee.optimizer->moved();
    } else {
      if (replay) trainee.optimizer->before_replay();
      losses.push_back(replay ? (*replay)(batch).front() : trainee.step(batch[0], batch[1]));
      if (replay) trainee.optimizer->replayed(moved);
    }
  }
  for (at::Tensor& loss : losses) loss = loss.detach().cpu();
  return losses;
}

/// 200 steps by eager, and as many of which all but the first two are replayed.
inline void expect_replay_equals_eager(const OptimizerConfig& config, bool convolutions,
                                       const MakeReplay& make_replay,
                                       at::Device device = at::kCPU) {
  Trainee eager(config, convolutions, device), replayed(config, convolutions, device);
  const Tensors came = losses_of(replayed, make_replay, device);
  expect_same(came, losses_of(eager, {}, device), "loss");
  const auto mine = replayed.net->named_parameters(), theirs = eager.net->named_parameters();
  for (const auto& item : theirs) {
    const at::Tensor& parameter = mine[item.key()];
    EXPECT_TRUE(same_bits(parameter.cpu(), item.value().cpu())) << item.key();
    EXPECT_TRUE(same_bits(parameter.grad().cpu(), item.value().grad().cpu())) << item.key();
  }
  const auto buffers = replayed.net->named_buffers();
  for (const auto& item : eager.net->named_buffers()) {
    EXPECT_TRUE(same_bits(buffers[item.key()].cpu(), item.value().cpu())) << item.key();
  }
}

}  // namespace levin::test
