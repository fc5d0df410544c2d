// ./12_trace_and_transform
// last line: difference=0.00
//
// Trace a training step to a graph of operators, print it, change it, and run it again. trace() runs
// ordinary code once. The graph offers what torch.fx offers in Python: find, replace, insert, delete.

#include <cstdio>

#include <levin/levin.h>

namespace graph = levin::graph;

/// After each operator of that name, one that counts how many of its results are zero.
graph::Values count_zeros(graph::Graph& graph, const char* target) {
  graph::Values counts;
  for (graph::Node* node : graph.find_nodes(target)) {
    const graph::InsertionPoint after = graph.inserting_after(*node);
    graph::Node& is_zero = graph.call_function("aten::eq.Scalar", {node->output(), 0});
    counts.push_back(&graph.call_function("aten::sum", {is_zero.output()}).output());
  }
  return counts;
}

int main() {
  levin::seed_everything(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 2));
  auto optimizer =
      levin::optim::build_optimizer(levin::optim::sgd({.lr = 0.1}), levin::named_parameters(*net));
  const auto step = [&](const torch::Tensor& x, const torch::Tensor& y) {
    optimizer->zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    optimizer->step();
    return loss;
  };
  const auto batch = [] { return std::vector{torch::randn({32, 8}), torch::randint(2, {32})}; };

  // One real step, and its graph: forward, backward and update.
  graph::GraphModule traced = levin::trace(step, batch(), {.state = levin::named_parameters(*net)});
  std::printf("%s\n", graph::to_text(traced.graph()).c_str());

  // From here on the graph trains the network. It says more than the function did.
  graph::Values outputs = traced.graph().outputs();
  for (graph::Value* count : count_zeros(traced.graph(), "aten::relu")) outputs.push_back(count);
  traced.graph().set_outputs(outputs);
  traced.graph().lint();
  for (int i = 0; i < 3; ++i) {
    const auto results = traced(batch());
    std::printf("loss %.4f, %d of %d activations are zero\n", results[0].item<double>(),
                results[1].item<int>(), 32 * 16);
  }

  // x - x.max() under a softmax does nothing but cost: a pattern, and what to put in its place.
  const torch::Tensor x = torch::randn({4, 6});
  const auto shifted = [](const torch::Tensor& in) {
    return torch::softmax(in - in.amax(1, true), 1);
  };
  auto module = levin::trace([&](const torch::Tensor& in) { return shifted(in * 2); }, {x});
  const auto pattern = levin::trace(shifted, {x});
  const auto plain =
      levin::trace([](const torch::Tensor& in) { return torch::softmax(in, 1); }, {x});
  const torch::Tensor before = module({x})[0];
  const size_t count = graph::replace_pattern(module.graph(), pattern.graph(), plain.graph());
  const torch::Tensor difference = (module({x})[0] - before).abs().max();
  std::printf("replaced %zu pattern\n", count);
  std::printf("difference=%.2f\n", difference.item<double>());
}
