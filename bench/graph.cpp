// What recording adds to an operator, and what interpreting costs: a training step of a transformer
// of 4 layers, so small that the operators' own time does not drown it, with Adam.

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "levin/accelerator/engine/host_memory.h"
#include "levin/graph/compile/compile_backend.h"
#include "levin/graph/compile/difference.h"
#include "levin/graph/record/interposer.h"
#include "levin/graph/record/trace.h"
#include "levin/strategy/backward.h"

namespace {

struct Step {
  torch::nn::TransformerEncoder net{torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0), 4)};
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(1e-3)};
  at::Tensor x = torch::randn({4, 2, 16});

  Step() {
    at::set_num_threads(1);
    levin::detail::keep_freed_memory();  // as training does
    run(x);
  }
  at::Tensor run(const at::Tensor& input) {
    optimizer.zero_grad();
    at::Tensor loss = net->forward(input).pow(2).mean();
    levin::backward(loss);
    optimizer.step();
    return loss;
  }
};

struct Counting : levin::graph::OperatorHandler {
  int64_t calls = 0;
  void call(levin::graph::OperatorCall& call) override {
    ++calls;
    call.proceed();
  }
};

int64_t num_operators(Step& step) {
  Counting counting;
  const levin::graph::HandlerScope scope(counting);
  step.run(step.x);
  return counting.calls;
}

/// Time over all operators of the step, so that the difference of two is what one operator costs.
void report(benchmark::State& state, Step& step) {
  const auto count = static_cast<double>(num_operators(step));
  state.counters["operators"] = count;
  state.counters["per_operator"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void eager(benchmark::State& state) {
  Step step;
  for (auto _ : state) benchmark::DoNotOptimize(step.run(step.x));
  report(state, step);
}
BENCHMARK(eager);

void interposed(benchmark::State& state) {
  Step step;
  Counting counting;
  for (auto _ : state) {
    const levin::graph::HandlerScope scope(counting);
    benchmark::DoNotOptimize(step.run(step.x));
  }
  report(state, step);
}
BENCHMARK(interposed);

void traced(benchmark::State& state) {
  Step step;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        levin::trace([&](const at::Tensor& x) { return step.run(x); }, {step.x}));
  }
  report(state, step);
}
BENCHMARK(traced);

/// As Compiled records: with what the host does, and where it differs from the recording before.
/// Then the two are compared.
void record_as_compiled(benchmark::State& state, bool compares) {
  Step step;
  const auto engine = levin::graph::make_replay_engine();
  const std::vector<at::Tensor> inputs = {step.x};
  const std::vector<std::string_view> names = {"x"};
  std::vector<at::Tensor> weights = step.net->parameters();
  levin::graph::Graph before;
  const auto record = [&] {
    auto result = engine->record({.inputs = inputs,
                                  .names = names,
                                  .watched = weights,
                                  .function = [&] { return std::vector{step.run(step.x)}; },
                                  .more = [] { return std::vector<at::Tensor>(); },
                                  .expected = before.nodes().empty() ? nullptr : &before});
    TORCH_CHECK(result.graph.has_value(), result.reason_not_recorded);
    return std::move(*result.graph);
  };
  before = record();
  for (auto _ : state) {
    const levin::graph::Graph graph = record();
    if (compares) benchmark::DoNotOptimize(levin::graph::first_difference(before, graph));
  }
  report(state, step);
}
void recorded(benchmark::State& state) { record_as_compiled(state, /*compares=*/false); }
BENCHMARK(recorded);
void checked(benchmark::State& state) { record_as_compiled(state, /*compares=*/true); }
BENCHMARK(checked);

void interpreted(benchmark::State& state) {
  Step step;
  auto module = levin::trace([&](const at::Tensor& x) { return step.run(x); }, {step.x});
  for (auto _ : state) benchmark::DoNotOptimize(module({step.x}));
  report(state, step);
}
BENCHMARK(interpreted);

}  // namespace
