#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "levin/graph/passes/passes.h"
#include "tests/graph/against_eager.h"

namespace {

using at::Tensor;
using levin::graph::fuse;
using levin::graph::Graph;
using levin::test::same_bits;
using levin::test::Tensors;

struct FusionCase {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& a, const Tensor& b)> chain;
  const char* target;
  bool is_exact;
};

// NOLINTNEXTLINE(cert-err58-cpp): a table of lambdas
const std::vector<FusionCase>& cases() {
  static const std::vector<FusionCase> kCases = {
      {"quotient", [](auto& x, auto& a, auto& b) { return x + a / b; }, "aten::addcdiv", true},
      {"quotient first", [](auto& x, auto& a, auto& b) { return a / b + x; }, "aten::addcdiv",
       true},
      {"negative", [](auto& x, auto& a, auto&) { return x + a.neg(); }, "aten::sub.Tensor", true},
      {"minus negative", [](auto& x, auto& a, auto&) { return x - a.neg(); }, "aten::add.Tensor",
       true},
      {"clamp", [](auto& x, auto&, auto&) { return x.clamp_min(-0.5).clamp_max(0.25); },
       "aten::clamp", true},
      {"product", [](auto& x, auto& a, auto& b) { return x + a * b; }, "aten::addcmul", false},
      {"scaled", [](auto& x, auto& a, auto&) { return x + a * 0.3; }, "aten::add.Tensor", false},
      {"minus scaled", [](auto& x, auto& a, auto&) { return x - a * 0.3; }, "aten::sub.Tensor",
       false},
      {"lerp", [](auto& x, auto& a, auto&) { return x + (a - x) * 0.3; }, "aten::lerp.Scalar",
       false},
      {"rsqrt", [](auto& x, auto&, auto&) { return x.sqrt().reciprocal(); }, "aten::rsqrt", false},
      {"silu", [](auto& x, auto&, auto&) { return torch::sigmoid(x) * x; }, "aten::silu", false},
      {"addmm", [](auto& x, auto& a, auto& b) { return a.mm(b) + x; }, "aten::addmm", false},
  };
  return kCases;
}

Graph graph_of(const FusionCase& one, const Tensors& inputs) {
  return levin::trace(one.chain, inputs).graph().clone();
}

size_t num_calls(const Graph& graph) {
  return graph.find_nodes(levin::graph::Opcode::kCallFunction).size();
}

/// Of all magnitudes, with what is no ordinary number.
Tensors special_inputs(at::ScalarType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  Tensors inputs;
  for (int i = 0; i < 3; ++i) {
    const Tensor powers = torch::randint(-30, 30, {64, 64}).to(torch::kDouble).exp2();
    Tensor input = torch::randn({64, 64}, torch::kDouble) * powers;
    input.view(-1)
        .slice(0, 100 * i, 100 * i + 5)
        .copy_(torch::tensor({infinity, -infinity, std::nan(""), -0.0, 0.0}, torch::kDouble));
    inputs.push_back(input.to(dtype));
  }
  return inputs;
}

TEST(Fuse, OfEachChainMakesOneOperator) {
  for (const FusionCase& one : cases()) {
    SCOPED_TRACE(one.name);
    const Tensors inputs = {torch::rand({64, 64}), torch::rand({64, 64}), torch::rand({64, 64})};
    Graph graph = graph_of(one, inputs);
    const Tensor wanted = levin::graph::interpret(graph, inputs).outputs[0];
    EXPECT_EQ(fuse(graph, {.exact = false}), 1U);
    graph.lint();
    EXPECT_EQ(num_calls(graph), 1U);
    EXPECT_EQ(graph.find_nodes(one.target).size(), 1U);
    const Tensor came = levin::graph::interpret(graph, inputs).outputs[0];
    EXPECT_TRUE(torch::allclose(came, wanted, 1e-5, 1e-6));
    EXPECT_TRUE(same_bits(levin::graph::Replay(graph)(inputs)[0], came));
  }
}

/// A NaN is one, whatever its sign.
Tensor with_plain_nans(const Tensor& tensor) {
  return torch::where(tensor.isnan(), torch::full_like(tensor, std::nan("")), tensor);
}

TEST(Fuse, ByDefaultKeepsEveryBit) {
  for (const FusionCase& one : cases()) {
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
      SCOPED_TRACE(std::string(one.name) + " " + c10::toString(dtype));
      const Tensors inputs = special_inputs(dtype);
      Graph graph = graph_of(one, inputs);
      const Tensor wanted = levin::graph::interpret(graph, inputs).outputs[0];
      const bool rounds_between = one.target == std::string("aten::addcdiv") &&
                                  (dtype == torch::kBFloat16 || dtype == torch::kHalf);
      EXPECT_EQ(fuse(graph), one.is_exact && !rounds_between ? 1U : 0U);
      const Tensor came = levin::graph::interpret(graph, inputs).outputs[0];
      EXPECT_TRUE(same_bits(with_plain_nans(came), with_plain_nans(wanted)));
    }
  }
}

TEST(Fuse, LeavesWhatOthersRead) {
  const Tensors inputs = {torch::rand({8}), torch::rand({8}), torch::rand({8})};
  const auto module = levin::trace(
      [](const Tensor& x, const Tensor& a, const Tensor& b) {
        const Tensor quotient = a / b;
        return (x + quotient) * quotient;
      },
      inputs);
  Graph graph = module.graph().clone();
  EXPECT_EQ(fuse(graph, {.exact = false}), 0U);
}

TEST(Fuse, LeavesTensorsOfOtherTypesAndSizes) {
  const auto count = [](const Tensor& x, const Tensor& a, const Tensor& b) {
    const auto module = levin::trace(
        [](const Tensor& p, const Tensor& q, const Tensor& r) { return p + q / r; }, {x, a, b});
    Graph graph = module.graph().clone();
    return fuse(graph);
  };
  const Tensor x = torch::rand({4, 4}) + 1;
  EXPECT_EQ(count(x, x.clone(), x.clone()), 1U);
  EXPECT_EQ(count(x, torch::rand({4}), x.clone()), 0U);
  EXPECT_EQ(count(x.to(torch::kDouble), x, x.clone()), 0U);
  EXPECT_EQ(count(x, x.t().clone(), x.clone()), 0U);
  EXPECT_EQ(count(x, x.to(torch::kInt), x.to(torch::kInt) + 1), 0U);
}

TEST(Fuse, LeavesATrainingStepWhatItWas) {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::SiLU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                            torch::nn::Linear(8, 8));
  const levin::test::Subject subject{
      .function = [&](const Tensors& inputs) -> Tensors {
        net->zero_grad();
        const Tensor y = net->forward(inputs[0]);
        const Tensor loss = (inputs[1] + y / (y.abs() + 1)).clamp_min(-1).clamp_max(1).sum();
        loss.backward();
        return {loss};
      },
      .inputs = {torch::randn({4, 6}), torch::randn({4, 8})},
      .state = levin::named_parameters(*net)};
  levin::graph::GraphModule module{Graph()};
  levin::test::outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) {
    module = levin::trace(subject.function, inputs, {.state = subject.state});
    return Tensors();
  });
  const auto call = [&](const Tensors& inputs) { return module(inputs); };
  const auto before = levin::test::outcome_of(subject, subject.inputs, 1, call);
  EXPECT_GT(fuse(module.graph()), 0U);
  module.graph().lint();
  expect_same(levin::test::outcome_of(subject, subject.inputs, 1, call), before, "fused");
}

}  // namespace
