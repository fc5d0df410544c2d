// Steps that are run again: as eager for as long as one likes. Every layer and every aliasing case
// is replayed by against_eager.h too.

#include "levin/graph/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::Replay;
using levin::graph::ReplayReport;
using levin::test::error_of;
using levin::test::expect_same;
using levin::test::same_bits;
using levin::test::Tensors;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace optim = levin::optim;

/// A network with all that has state of its own, and its optimizer.
struct Trainee {
  torch::nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;

  explicit Trainee(const levin::OptimizerConfig& config, bool convolutions = false) {
    torch::manual_seed(7);
    if (convolutions) {
      net = torch::nn::Sequential(torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {1, 8, 8})),
                                  torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
                                  torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                                  torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                                  torch::nn::Linear(64, 5));
    } else {
      net = torch::nn::Sequential(torch::nn::Linear(64, 32), torch::nn::BatchNorm1d(32),
                                  torch::nn::GELU(), torch::nn::Dropout(0.3),
                                  torch::nn::Linear(32, 5));
    }
    optimizer = optim::build_optimizer(config, levin::named_parameters(*net));
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    optimizer->zero_grad();
    const Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    levin::backward(loss);
    optimizer->step();
    return loss;
  }
};

Tensors batch_of(int64_t number) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
  return {torch::randn({16, 64}, random), torch::randint(0, 5, {16}, random, torch::kLong)};
}

/// 200 steps by eager, and as many of which all but the first two are replayed.
void expect_replay_equals_eager(const levin::OptimizerConfig& config, bool convolutions) {
  Trainee eager(config, convolutions), replayed(config, convolutions);
  const auto losses = [](Trainee& trainee, bool replays) {
    torch::manual_seed(11);
    if (replays) trainee.optimizer->set_capturable(true);
    Tensors losses;
    std::optional<Replay> replay;
    std::function<void()> host_part;
    for (int64_t i = 0; i < 200; ++i) {
      const Tensors batch = batch_of(i);
      if (replays && i == 1) {  // the optimizer has its state by now
        const auto step = [&](const Tensor& x, const Tensor& y) { return trainee.step(x, y); };
        const auto module = levin::trace(
            [&](const Tensor& x, const Tensor& y) { return losses.emplace_back(step(x, y)); },
            batch);
        replay.emplace(module.graph());
        host_part = trainee.optimizer->host_part();
      } else {
        if (replay) host_part();
        losses.push_back(replay ? (*replay)(batch).front() : trainee.step(batch[0], batch[1]));
      }
    }
    return levin::test::copies_of(losses);
  };
  expect_same(losses(replayed, true), losses(eager, false), "loss");
  const auto mine = replayed.net->named_parameters(), theirs = eager.net->named_parameters();
  for (const auto& item : theirs) {
    EXPECT_TRUE(same_bits(mine[item.key()], item.value())) << item.key();
    EXPECT_TRUE(same_bits(mine[item.key()].grad(), item.value().grad())) << item.key();
  }
  const auto buffers = replayed.net->named_buffers();
  for (const auto& item : eager.net->named_buffers()) {
    EXPECT_TRUE(same_bits(buffers[item.key()], item.value())) << item.key();
  }
}

TEST(Replay, EqualsEagerOver200Steps) {
  for (const bool convolutions : {false, true}) {
    expect_replay_equals_eager(optim::sgd({.lr = 0.05, .momentum = 0.9}), convolutions);
    expect_replay_equals_eager(optim::adamw({.lr = 0.01}), convolutions);
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
              StartsWith("graph.replay.moved: weight lies elsewhere"));
}

TEST(Replay, OfAValueThatTheHostReadsIsAnError) {
  const auto module = levin::trace([](const Tensor& x) { return x * x.sum().item<double>(); },
                                   {torch::ones({3})}, {.allow_host_reads = true});
  EXPECT_THAT(error_of([&] { const Replay replay(module.graph()); }),
              StartsWith("graph.replay: the host reads what aten::_local_scalar_dense gives"));
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
