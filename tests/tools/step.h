#pragma once
// Training steps as graphs, for the tests of what looks at them.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/record/trace.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"

namespace levin::test {

/// Forward, cross entropy, backward, clipping where max_norm is above 0, and the update.
template <class Net>
struct TrainingStep {
  Net& net;
  std::vector<NamedTensor> parameters = named_parameters(*net);
  std::unique_ptr<optim::Optimizer> optimizer;
  double max_norm = 0.0;

  /// Runs it once, which makes the optimizer's state.
  TrainingStep(Net& net, const OptimizerConfig& config, const at::Tensor& x, const at::Tensor& y,
               double max_norm = 0.0)
      : net(net), optimizer(optim::build_optimizer(config, parameters)), max_norm(max_norm) {
    optimizer->set_capturable(true);
    (*this)(x, y);
  }

  at::Tensor operator()(const at::Tensor& input, const at::Tensor& target) {
    optimizer->zero_grad();
    const at::Tensor logits = net->forward(input).flatten(0, -2);
    const at::Tensor loss = torch::cross_entropy_loss(logits, target);
    loss.backward();
    if (max_norm > 0.0) optim::clip_grad_norm(parameters, max_norm);
    optimizer->step();
    return loss;
  }

  /// Beside the parameters.
  std::vector<NamedTensor> state() const {
    std::vector<NamedTensor> state = optimizer->named_state();
    for (const auto& buffer : net->named_buffers()) state.push_back({buffer.key(), buffer.value()});
    return state;
  }

  graph::GraphModule traced(const at::Tensor& x, const at::Tensor& y) {
    std::vector<NamedTensor> all = state();
    all.insert(all.end(), parameters.begin(), parameters.end());
    return trace([this](const at::Tensor& input,
                        const at::Tensor& target) { return (*this)(input, target); },
                 {x, y}, {.state = all});
  }
};

template <class Net>
graph::GraphModule step_of(Net& net, const OptimizerConfig& config, const at::Tensor& x,
                           const at::Tensor& y, double max_norm = 0.0) {
  return TrainingStep<Net>(net, config, x, y, max_norm).traced(x, y);
}

inline graph::GraphModule mlp_step(double max_norm = 0.0) {
  torch::nn::Sequential net(torch::nn::Linear(32, 64), torch::nn::ReLU(), torch::nn::Linear(64, 8));
  return step_of(net, optim::adamw({.lr = 0.01}), torch::randn({16, 32}), torch::randint(8, {16}),
                 max_norm);
}

/// As the Accelerator records one: the gradient of the step before comes in. The step adds to it,
/// or drops it.
inline graph::Graph step_with_old_gradient(bool adds) {
  const std::string begin = R"(%x = placeholder["x"] : f32[4, 8]
%old = placeholder["gradient of net.w"] : f32[8, 2]
%w = get_attr["net.w"] : f32[8, 2]
%mm = aten::mm(%x, %w) : f32[4, 2]
%sum = aten::sum(%mm) : f32[]
%ones_like = aten::ones_like(%sum) : f32[]
%expand = aten::expand(%ones_like, [4, 2]) : f32[4, 2]{0, 0}
%t = aten::t(%x) : f32[8, 4]{1, 8}
%new = aten::mm(%t, %expand) : f32[8, 2]
)";
  return graph::parse(begin + (adds ? R"(%add = aten::add_.Tensor(%old, %new) : f32[8, 2]
return %sum
gradient %w = %add
)"
                                    : R"(return %sum
gradient %w = %new
)"));
}

}  // namespace levin::test
