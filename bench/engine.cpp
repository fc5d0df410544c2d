// What the engine adds to a step: a loop by hand and the same through the Accelerator, with a model
// of one number and an optimizer that does nothing.

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/strategy/backward.h"

namespace {

struct OneNumber : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({1}));

  at::Tensor forward(const at::Tensor& x) const { return x * weight; }
};

class NoOptimizer final : public torch::optim::Optimizer {
 public:
  explicit NoOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure = nullptr) override { return {}; }
};

template <class Backward>
void by_hand(benchmark::State& state, const Backward& backward) {
  at::set_num_threads(1);
  OneNumber model;
  NoOptimizer optimizer(model.parameters());
  const at::Tensor x = torch::ones({1});
  for (auto _ : state) {
    optimizer.zero_grad();
    backward(model.forward(x));
    optimizer.step();
  }
}
BENCHMARK_CAPTURE(by_hand, libtorch_backward, [](const at::Tensor& loss) { loss.backward(); });
BENCHMARK_CAPTURE(by_hand, levin_backward, levin::backward);

void through_the_engine(benchmark::State& state, const char* precision) {
  at::set_num_threads(1);
  levin::Accelerator accelerator({.mixed_precision = precision, .cpu = true});
  const auto net = std::make_shared<OneNumber>();
  NoOptimizer own(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, own);
  const at::Tensor x = torch::ones({1});
  for (auto _ : state) {
    optimizer.zero_grad();
    accelerator.backward(model->forward(x));
    optimizer.step();
  }
}
BENCHMARK_CAPTURE(through_the_engine, float32, "no");
BENCHMARK_CAPTURE(through_the_engine, bf16_mixed, "bf16");

}  // namespace
