// Steps that are run again: as eager for as long as one likes. Every layer and every aliasing case
// is replayed by against_eager.h too.

#include "levin/graph/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/optim/optim.h"
#include "tests/graph/against_eager.h"
#include "tests/graph/training.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::Replay;
using levin::graph::ReplayReport;
using levin::test::batch_of;
using levin::test::error_of;
using levin::test::Tensors;
using levin::test::Trainee;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace optim = levin::optim;

TEST(Replay, EqualsEagerOver200Steps) {
  for (const bool convolutions : {false, true}) {
    for (const auto& config :
         {optim::sgd({.lr = 0.05, .momentum = 0.9}), optim::adamw({.lr = 0.01})}) {
      levin::test::expect_replay_equals_eager(
          config, convolutions, [](const levin::graph::Graph& graph) { return Replay(graph); });
    }
  }
}

TEST(Replay, WritesToPlannedMemory) {
  Trainee trainee(optim::sgd({.lr = 0.1}));
  const Tensors batch = batch_of(0);
  const auto module =
      levin::trace([&](const Tensor& x, const Tensor& y) { return trainee.step(x, y); }, batch);
  const ReplayReport report = Replay(module.graph()).report();
  EXPECT_EQ(report.num_copies, 0);
  EXPECT_GE(report.num_views, 3);  // weights transposed, once and for all
  EXPECT_LT(report.num_allocating, report.num_operators / 3);
  EXPECT_GE(report.arena_bytes, report.needed_bytes);
  EXPECT_LT(report.arena_bytes, 1.2 * static_cast<double>(report.needed_bytes));
}

TEST(Replay, LeavesTheCallerItsOutputs) {
  const auto module = levin::trace([](const Tensor& x) { return x * 2; }, {torch::ones({3})});
  Replay replay(module.graph());
  const Tensor first = replay({torch::ones({3})}).front();
  replay({torch::zeros({3})});
  EXPECT_TRUE(torch::equal(first, torch::full({3}, 2.0)));
}

TEST(Replay, LeavesItsMemoryButForGradients) {
  const Tensor weight = torch::randn({64, 1024}, torch::requires_grad());
  const auto step = [&](const Tensor& x) {
    weight.mutable_grad().reset();
    const Tensor loss = (x.mm(weight).tanh() * 3).square().sum();
    loss.backward();
    return loss.detach();
  };
  const auto module = levin::trace(step, {torch::randn({512, 64})});
  Replay replay(module.graph());
  for (int i = 0; i < 3; ++i) {
    const Tensor x = torch::randn({512, 64});
    const Tensor loss = replay({x}).front(), left = weight.grad(), gradient = left.clone();
    replay.leave_memory();
    EXPECT_TRUE(torch::equal(left, gradient));
    EXPECT_TRUE(torch::equal(step(x), loss));
    EXPECT_TRUE(torch::equal(weight.grad(), gradient));
  }
}

TEST(Replay, TakesInputsOfOtherStrides) {
  const auto module =
      levin::trace([](const Tensor& x) { return x.add_(1).sum(0); }, {torch::zeros({3, 2})});
  Replay replay(module.graph());
  const Tensor transposed = torch::arange(6).to(torch::kFloat).view({2, 3}).t();
  const Tensor wanted = transposed + 1;
  EXPECT_TRUE(torch::equal(replay({transposed}).front(), wanted.sum(0)));
  EXPECT_TRUE(torch::equal(transposed, wanted));
}

TEST(Replay, OfOtherInputsIsAnError) {
  const auto module = levin::trace([](const Tensor& x) { return x * 2; }, {torch::ones({3})});
  Replay replay(module.graph());
  EXPECT_THAT(error_of([&] { replay({torch::ones({4})}); }), StartsWith("graph.input: "));
  EXPECT_THAT(error_of([&] { replay({torch::ones({3}, torch::kDouble)}); }),
              HasSubstr("trace the function again"));
  EXPECT_THAT(error_of([&] { replay({}); }), HasSubstr("0 inputs, wanted 1"));
}

TEST(Replay, OfStateThatMovedIsAnError) {
  const Tensor weight = torch::ones({3});
  const auto module = levin::trace([&](const Tensor& x) { return x * weight; }, {torch::ones({3})},
                                   {.state = {{"weight", weight}}});
  Replay replay(module.graph());
  weight.set_data(torch::zeros({3}));
  EXPECT_THAT(error_of([&] { replay({torch::ones({3})}); }),
              StartsWith("graph.replay.moved: weight lies in other memory"));
}

TEST(Replay, GoesOnOnlyWhereTheHostReadsTheSame) {
  const Tensor count = torch::zeros({2});
  const auto module = levin::trace(
      [&](const Tensor& x) {
        count.add_(1);
        return x * x.sum().item<double>() + torch::rand({2});
      },
      {torch::ones({2})}, {.state = {{"count", count}}, .allow_host_reads = true});
  Replay replay(module.graph());
  torch::manual_seed(3);
  const Tensor drawn = torch::rand({2});
  torch::manual_seed(3);
  EXPECT_TRUE(
      torch::equal(replay({torch::tensor({0.5F, 1.5F})})[0], torch::tensor({1.0F, 3.0F}) + drawn));
  EXPECT_TRUE(torch::equal(count, torch::full({2}, 2.0)));  // with that of the trace
  const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_FALSE(replay.attempt({torch::zeros({2})}));
  ASSERT_NE(replay.other_read(), nullptr);
  EXPECT_EQ(replay.other_read()->number, 0U);
  EXPECT_TRUE(torch::equal(count, torch::full({2}, 2.0)));
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
  EXPECT_THAT(error_of([&] { replay({torch::zeros({2})}); }),
              StartsWith("graph.replay.read: the host would now read 0.0"));
  EXPECT_TRUE(replay.attempt({torch::ones({2})}));
  EXPECT_EQ(replay.other_read(), nullptr);
  EXPECT_TRUE(torch::equal(count, torch::full({2}, 3.0)));
}

TEST(Replay, OfAnUnknownValueThatTheHostReadsIsAnError) {
  const auto module = levin::trace([](const Tensor& x) { return x * x.sum().item<double>(); },
                                   {torch::ones({3})}, {.allow_host_reads = true});
  const auto read_back = levin::graph::parse(levin::graph::to_text(module.graph()));
  EXPECT_THAT(error_of([&] { const Replay replay(read_back); }),
              StartsWith("graph.replay: the host reads the result of aten::_local_scalar_dense"));
}

TEST(Replay, OfValuesOfUnknownTypeIsAnError) {
  levin::graph::Graph graph;
  auto& x = graph.placeholder("x", levin::graph::ValueType::of(torch::ones({3})));
  graph.set_outputs({&graph.call_function("aten::relu", {x}).output()});
  EXPECT_THAT(error_of([&] { const Replay replay(graph); }), HasSubstr("call propagate_types"));
  levin::graph::propagate_types(graph, {torch::ones({3})});
  EXPECT_TRUE(torch::equal(Replay(graph)({-torch::ones({3})}).front(), torch::zeros({3})));
}

}  // namespace
