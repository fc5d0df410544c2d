// What the engine adds to a step: a loop by hand and the same through the Accelerator, with a model
// of one number and an optimizer that does nothing; and what fsdp's look at each operator costs where
// parameters are gathered.

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <optional>

#include "levin/accelerator/accelerator.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/fsdp/gather/lazy_gather.h"

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

struct Nothing final : levin::graph::OperatorHandler {
  void call(levin::graph::OperatorCall& call) override { call.proceed(); }
};

/// 100 operators of two tensors of a number, one of them a parameter.
void operators(benchmark::State& state, levin::graph::OperatorHandler* handler,
               const at::Tensor& weight) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  std::optional<levin::graph::HandlerScope> scope;
  if (handler != nullptr) scope.emplace(*handler);
  const at::Tensor x = torch::ones({1});
  for (auto _ : state) {
    for (int i = 0; i < 100; ++i) benchmark::DoNotOptimize(x * weight);
  }
}
void operators_alone(benchmark::State& state) { operators(state, nullptr, torch::ones({1})); }
BENCHMARK(operators_alone);
void operators_seen(benchmark::State& state) {
  Nothing nothing;
  operators(state, &nothing, torch::ones({1}));
}
BENCHMARK(operators_seen);
void operators_seen_by_first_touch(benchmark::State& state) {
  const levin::comm::ProcessGroup group;
  const levin::comm::DeviceMesh mesh(group, {{"dp", 1}});
  const at::Tensor weight = torch::ones({1}).requires_grad_();
  levin::fsdp::Unit unit("unit", {{"weight", weight}}, mesh, {});
  unit.take_memory(at::kCPU);
  unit.place();
  levin::fsdp::LazyGather touch(group, 0);
  touch.add(unit);
  for (int64_t i = 0; i < state.range(0); ++i) touch.learn_uses();  // not in the first steps alone
  unit.begin_pass();
  operators(state, &touch, weight);
  unit.end_pass();
}
BENCHMARK(operators_seen_by_first_touch)->Arg(0)->Arg(8);

}  // namespace
