#pragma once
// A small module under a strategy, with an optimizer, and the same of one process.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <string_view>

#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"

namespace levin::test {

inline torch::nn::Sequential net_of_layers() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8),
                               torch::nn::ReLU(), torch::nn::Linear(8, 4));
}

/// A module under fsdp with one optimizer.
struct Trained {
  explicit Trained(const comm::ProcessGroup& group, torch::nn::Sequential module = net_of_layers(),
                   FsdpOptions options = {}, std::string_view name = "fsdp",
                   bool recordable = false)
      : net(std::move(module)),
        strategy(make_strategy(name, {.group = group, .fsdp = options, .recordable = recordable})) {
    strategy->setup(*net, at::kCPU);
    optimizer = strategy->build_optimizer(optim::sgd({.lr = 0.1}), named_parameters(*net));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto whole = strategy->compute_scope();
    return net->forward(x);
  }
  void step(const at::Tensor& x) {
    optimizer->zero_grad();
    strategy->backward(forward(x).square().mean(), /*synchronize=*/true);
    strategy->update(*optimizer);
  }

  torch::nn::Sequential net;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<optim::Optimizer> optimizer;
};

inline at::Tensor some_inputs(int64_t seed = 1) {
  return torch::randn({5, 6},
                      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed)));
}

inline bool same(const State& one, const State& other, double tolerance = 0) {
  for (const auto& [name, value] : one.values()) {
    if (!at::allclose(one.tensor(name), other.tensor(name), 0, tolerance)) return false;
  }
  return one.values().size() == other.values().size();
}

/// A state of module of one process after these steps.
inline State trained_alone(int64_t steps) {
  Trained alone({}, net_of_layers(), {}, "single");
  for (int64_t i = 0; i < steps; ++i) alone.step(some_inputs(i));
  return full(*alone.net);
}

/// What LibTorch says of a call that it refuses.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace levin::test
