#include "levin/graph/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/replay/replay.h"
#include "tests/graph/against_eager.h"

namespace {

using at::Tensor;
using levin::graph::eliminate_common_subexpressions;
using levin::graph::fold_constants;
using levin::graph::Graph;
using levin::test::same_bits;

size_t count(const Graph& graph, const char* target) { return graph.find_nodes(target).size(); }

TEST(CommonSubexpressions, AreComputedOnce) {
  auto module = levin::trace([](const Tensor& x) { return x.exp() * x.exp() + (x + 1) * (x + 1); },
                             {torch::randn({3})});
  const Tensor x = torch::randn({3});
  const Tensor before = module({x}).front();
  EXPECT_EQ(eliminate_common_subexpressions(module.graph()), 2U);
  EXPECT_EQ(count(module.graph(), "aten::exp"), 1U);
  module.graph().lint();
  EXPECT_TRUE(same_bits(module({x}).front(), before));
}

TEST(CommonSubexpressions, OfOtherConstantsAreOthers) {
  auto module =
      levin::trace([](const Tensor& x) { return x.sum(0) + x.sum(1) + x.mul(2) + x.mul(2.5); },
                   {torch::randn({3, 3})});
  EXPECT_EQ(eliminate_common_subexpressions(module.graph()), 0U);
}

TEST(CommonSubexpressions, DrawsAreEachTheirOwn) {
  auto module =
      levin::trace([](const Tensor& x) { return torch::rand_like(x) - torch::rand_like(x); },
                   {torch::randn({8})});
  EXPECT_EQ(eliminate_common_subexpressions(module.graph()), 0U);
  EXPECT_FALSE(torch::equal(module({torch::randn({8})}).front(), torch::zeros({8})));
}

TEST(CommonSubexpressions, OfWhatWasWrittenInBetweenAreOthers) {
  auto module = levin::trace(
      [](const Tensor& x) {
        const Tensor y = x.clone();
        const Tensor before = y.exp();
        y.add_(1);
        return before + y.exp();
      },
      {torch::randn({3})});
  EXPECT_EQ(eliminate_common_subexpressions(module.graph()), 0U);
}

// One tensor in both places of the list would be multiplied twice.
TEST(CommonSubexpressions, ThatOneOperatorWritesStayApart) {
  auto module = levin::trace(
      [](const Tensor& x) {
        const std::vector<Tensor> pair = {x.exp(), x.exp()};
        at::_foreach_mul_(pair, 3);
        return pair[0] + pair[1];
      },
      {torch::randn({3})});
  EXPECT_EQ(eliminate_common_subexpressions(module.graph()), 0U);
  const Tensor x = torch::randn({3});
  const Tensor wanted = x.exp() * 3 + x.exp() * 3;
  EXPECT_TRUE(same_bits(module({x}).front(), wanted));
  EXPECT_TRUE(same_bits(levin::graph::Replay(module.graph())({x}).front(), wanted));
}

TEST(WhatOutputsNeed, IsAllThatStays) {
  const Tensor state = torch::zeros({3});
  auto module = levin::trace(
      [&](const Tensor& x) {
        state.add_(x);
        const Tensor needed = x.exp();
        const bool is_positive = torch::rand_like(x).sum().item<double>() > 0;
        return is_positive ? needed : needed.neg();
      },
      {torch::ones({3})}, {.allow_host_reads = true});
  Graph& graph = module.graph();
  EXPECT_EQ(levin::graph::keep_what_outputs_need(graph), 4U);
  EXPECT_EQ(count(graph, "aten::exp"), 1U);
  EXPECT_TRUE(graph.updates().empty());
  EXPECT_TRUE(graph.host_reads().empty());
  graph.lint();
  EXPECT_TRUE(same_bits(module({torch::ones({3})}).front(), torch::ones({3}).exp()));
  EXPECT_TRUE(same_bits(state, torch::ones({3}))) << "written by the trace alone";
}

TEST(Constants, AreComputedOnceAndForAll) {
  auto module = levin::trace(
      [](const Tensor& x) { return x + torch::arange(3).to(torch::kFloat).mul(2).sqrt(); },
      {torch::randn({3})});
  const Tensor x = torch::randn({3});
  const Tensor before = module({x}).front();
  EXPECT_GT(fold_constants(module.graph()), 0U);
  EXPECT_EQ(count(module.graph(), "aten::arange"), 0U);
  module.graph().lint();
  EXPECT_TRUE(same_bits(module({x}).front(), before));
}

TEST(Passes, LeaveATrainingStepWhatItWas) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(5, 8), torch::nn::Dropout(0.5), torch::nn::Tanh(),
                            torch::nn::Linear(8, 3));
  const levin::test::Subject subject{
      .function = [&](const levin::test::Tensors& inputs) -> levin::test::Tensors {
        net->zero_grad();
        const Tensor loss = torch::nn::functional::mse_loss(net->forward(inputs[0]), inputs[1]);
        loss.backward();
        return {loss};
      },
      .inputs = {torch::randn({4, 5}), torch::randn({4, 3})},
      .other_inputs = {torch::randn({4, 5}), torch::randn({4, 3})},
      .state = levin::named_parameters(*net)};
  auto module = levin::test::expect_equals_eager(subject);
  const size_t nodes = module.graph().nodes().size();
  eliminate_common_subexpressions(module.graph());
  fold_constants(module.graph());
  module.graph().eliminate_dead_code();
  module.graph().lint();
  EXPECT_LT(module.graph().nodes().size(), nodes);
  const auto eager = levin::test::outcome_of(subject, subject.inputs, 1, subject.function);
  const auto changed =
      levin::test::outcome_of(subject, subject.inputs, 1,
                              [&](const levin::test::Tensors& inputs) { return module(inputs); });
  levin::test::expect_same(changed, eager, "after the passes");
}

}  // namespace
