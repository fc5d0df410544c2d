#pragma once
// Training steps as graphs, for the tests of what looks at them.

#include <torch/torch.h>

#include <vector>

#include "levin/graph/trace.h"
#include "levin/module/parameters.h"
#include "levin/optim/clip.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"

namespace levin::test {

/// Forward, cross entropy, backward, clipping where max_norm is above 0, and the update.
template <class Net>
graph::GraphModule step_of(Net& net, const OptimizerConfig& config, const at::Tensor& x,
                           const at::Tensor& y, double max_norm = 0.0) {
  const std::vector<NamedTensor> parameters = named_parameters(*net);
  const auto optimizer = optim::build_optimizer(config, parameters);
  optimizer->set_capturable(true);
  const auto step = [&](const at::Tensor& input, const at::Tensor& target) {
    optimizer->zero_grad();
    const at::Tensor logits = net->forward(input).flatten(0, -2);
    const at::Tensor loss = torch::cross_entropy_loss(logits, target);
    loss.backward();
    if (max_norm > 0.0) optim::clip_grad_norm(parameters, max_norm);
    optimizer->step();
    return loss;
  };
  step(x, y);  // the first makes the optimizer's state
  std::vector<NamedTensor> state = optimizer->named_state();
  state.insert(state.end(), parameters.begin(), parameters.end());
  for (const auto& buffer : net->named_buffers()) state.push_back({buffer.key(), buffer.value()});
  return trace(step, {x, y}, {.state = state});
}

inline graph::GraphModule mlp_step(double max_norm = 0.0) {
  torch::nn::Sequential net(torch::nn::Linear(32, 64), torch::nn::ReLU(), torch::nn::Linear(64, 8));
  return step_of(net, optim::adamw({.lr = 0.01}), torch::randn({16, 32}), torch::randint(8, {16}),
                 max_norm);
}

}  // namespace levin::test
