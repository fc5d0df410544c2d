#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "levin/graph/passes/passes.h"
#include "levin/graph/replay/replay.h"
#include "levin/models/gpt2.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"
#include "tests/graph/allocation_meter.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::Graph;
using levin::graph::GraphModule;
using levin::graph::memory_of;
using levin::graph::MemoryProfile;
using levin::graph::MemoryUse;
using levin::graph::Node;
using levin::graph::Rematerialization;
using levin::graph::rematerialize;
using levin::graph::Replay;
using levin::test::error_of;
using levin::test::expect_same;
using levin::test::Outcome;
using levin::test::outcome_of;
using levin::test::peak_of;
using levin::test::Subject;
using levin::test::Tensors;
using ::testing::StartsWith;

/// A step of training with plain SGD: gives the loss, and leaves gradients and new parameters.
template <class Loss>
Subject training_of(torch::nn::Module& net, const Tensors& inputs, const Loss& loss_of) {
  const auto step = [&net, loss_of](const Tensors& batch) -> Tensors {
    net.zero_grad();
    const Tensor loss = loss_of(batch);
    levin::backward(loss);
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : net.parameters()) parameter.sub_(parameter.grad(), 0.1);
    return {loss.detach()};
  };
  return {.function = step, .inputs = inputs, .state = levin::named_parameters(net)};
}

Graph traced(const Subject& subject) {
  GraphModule module{Graph()};
  outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) {
    module = levin::trace(subject.function, inputs, {.state = subject.state});
    return Tensors();
  });
  return std::move(module.graph());
}

Tensors interpreted(const Graph& graph, const Tensors& inputs) {
  return levin::graph::interpret(graph, inputs, {.donate = true}).outputs;
}

/// Of the bytes at the peak, those of inputs, parameters and other state: they stay.
int64_t resident_bytes(const MemoryProfile& profile) {
  int64_t bytes = 0;
  for (const auto& alive : profile.alive_at_peak) {
    const bool stays = alive.use != MemoryUse::kValue && alive.use != MemoryUse::kGradient;
    bytes += stays ? alive.bytes : 0;
  }
  return bytes;
}

int64_t budget_of(const Graph& graph, double fraction) {
  const MemoryProfile profile = memory_of(graph);
  const int64_t resident = resident_bytes(profile);
  return resident + static_cast<int64_t>(fraction * (profile.peak_bytes - resident));
}

struct Measured {
  Outcome outcome;
  int64_t bytes = 0;  ///< that the run has allocated at most
};

Measured measured(const Subject& subject, const std::function<Tensors(const Tensors&)>& call) {
  int64_t bytes = 0;
  Outcome outcome = outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) {
    Tensors results;
    bytes = peak_of([&] { results = call(inputs); });
    return results;
  });
  return {std::move(outcome), bytes};
}

/// What a kernel of the network allocates for itself, which no account of values knows: on some
/// processors a convolution's arguments are laid out anew.
int64_t scratch_of_convolution_backward(at::IntArrayRef input, at::IntArrayRef weight) {
  const at::Tensor x = torch::randn(input);
  const at::Tensor w = torch::randn(weight);
  const at::Tensor y = at::conv2d(x, w, {}, 1, 1);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> results;
  const int64_t bytes = peak_of([&] {
    results = at::convolution_backward(y, x, w, at::IntArrayRef({weight[0]}), {1, 1}, {1, 1},
                                       {1, 1}, false, {0, 0}, 1, {true, true, true});
  });
  return bytes - static_cast<int64_t>(std::get<0>(results).nbytes());
}

/// Under the budget by at most 5 %, by account and by what ATen allocates; the same bits.
Rematerialization expect_fits(const Subject& subject, const Graph& whole, double fraction,
                              int64_t scratch = 0) {
  SCOPED_TRACE(fraction);
  const int64_t budget = budget_of(whole, fraction);
  Graph fitted = whole.clone();
  const Rematerialization done = rematerialize(fitted, budget);
  fitted.lint();
  EXPECT_LE(done.peak_bytes, budget);
  EXPECT_GT(static_cast<double>(done.peak_bytes), 0.95 * static_cast<double>(budget));
  EXPECT_EQ(done.peak_bytes, memory_of(fitted).peak_bytes);
  EXPECT_EQ(done.peak_bytes_before, memory_of(whole).peak_bytes);

  const auto wanted = measured(subject, [&](const Tensors& x) { return interpreted(whole, x); });
  const auto came = measured(subject, [&](const Tensors& x) { return interpreted(fitted, x); });
  expect_same(came.outcome, wanted.outcome, "interpreted");
  const auto share = static_cast<double>(came.bytes) / static_cast<double>(wanted.bytes);
  EXPECT_GE(share, 0.95 * fraction);
  EXPECT_LE(share - static_cast<double>(scratch) / static_cast<double>(wanted.bytes),
            1.05 * fraction);
  const auto replayed = measured(subject, [&](const Tensors& x) { return Replay(fitted)(x); });
  expect_same(replayed.outcome, wanted.outcome, "replayed");
  // The arena is there all the time; what operators allocate themselves (layer norms) comes on top.
  EXPECT_LT(static_cast<double>(replayed.bytes), 1.3 * static_cast<double>(came.bytes));
  return done;
}

TEST(Rematerialize, AMultilayerPerceptronFitsItsBudget) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 16; ++i) {
    net->push_back(torch::nn::Linear(32, 32));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
  }
  const Subject subject = training_of(*net, {torch::randn({1024, 32})}, [&](const Tensors& batch) {
    return net->forward(batch[0]).square().mean();
  });
  const Graph whole = traced(subject);
  for (const double fraction : {0.9, 0.7, 0.5, 0.3}) expect_fits(subject, whole, fraction);
}

TEST(Rematerialize, AConvolutionalNetworkWithBatchNormAndDropoutFitsItsBudget) {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
  for (int i = 0; i < 8; ++i) {
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
    net->push_back(torch::nn::BatchNorm2d(8));
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Dropout(0.1));
    if (i % 4 == 3) net->push_back(torch::nn::MaxPool2d(2));
  }
  Subject subject = training_of(*net, {torch::randn({8, 3, 16, 16})}, [&](const Tensors& batch) {
    return net->forward(batch[0]).square().mean();
  });
  for (const auto& item : net->named_buffers()) subject.state.push_back({item.key(), item.value()});
  const Graph whole = traced(subject);
  const int64_t scratch = scratch_of_convolution_backward({8, 8, 16, 16}, {8, 8, 3, 3});
  for (const double fraction : {0.9, 0.7, 0.5}) expect_fits(subject, whole, fraction, scratch);
}

TEST(Rematerialize, AGptOf12LayersFitsItsBudget) {
  torch::manual_seed(3);
  levin::models::GPT2 net(levin::models::GPT2Config{
      .vocab_size = 256, .n_positions = 64, .n_embd = 64, .n_layer = 12, .n_head = 4});
  const Tensors batch = {torch::randint(0, 256, {8, 64}), torch::randint(0, 256, {8, 64})};
  const Subject subject = training_of(*net, batch, [&](const Tensors& tokens) {
    const Tensor logits = net->forward(tokens[0]);
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens[1].flatten());
  });
  const Graph whole = traced(subject);
  for (const double fraction : {0.9, 0.7, 0.3}) expect_fits(subject, whole, fraction);
  const Rematerialization half = expect_fits(subject, whole, 0.5);
  const double flops = cost_of(whole, *levin::graph::find_device("cpu")).flops;
  EXPECT_LT(half.flops, 0.1 * flops);  // all of the forward pass would be a third
}

TEST(Rematerialize, DrawsAndStatisticsAreMadeOnce) {
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(torch::nn::BatchNorm1d(16));
    net->push_back(torch::nn::Dropout(0.5));
    net->push_back(torch::nn::Tanh());
  }
  const Subject subject = training_of(*net, {torch::randn({64, 16})}, [&](const Tensors& batch) {
    return net->forward(batch[0]).square().mean();
  });
  Graph graph = traced(subject);
  const auto count = [&](const char* target) { return graph.find_nodes(target).size(); };
  rematerialize(graph, budget_of(graph, 0.75));
  EXPECT_EQ(count("aten::bernoulli_"), 6U);
  EXPECT_GT(count("aten::native_batch_norm"), 6U);
  const auto writes = [](const Node* node) { return node->outputs().size() == 5; };
  EXPECT_EQ(std::ranges::count_if(graph.find_nodes("aten::native_batch_norm"), writes), 6);
}

/// At the largest moment, a value of 4000 bytes that only the end reads.
Graph with_value_to_spare(const std::function<Tensor(const Tensor&)>& value_of) {
  const auto module = levin::trace(
      [&](const Tensor& x) {
        const Tensor spare = value_of(x);
        const Tensor large = x.sin().unsqueeze(1).expand({1000, 4}).contiguous();
        return spare + large.exp().sum(1);
      },
      {torch::randn({1000})});
  return module.graph().clone();
}

TEST(Rematerialize, WhatIsReadOnlyLateRunsLateAndOnce) {
  Graph graph = with_value_to_spare([](const Tensor& x) { return x.cos(); });
  const int64_t peak = memory_of(graph).peak_bytes;
  const Rematerialization done = rematerialize(graph, peak - 4000);
  EXPECT_EQ(done.peak_bytes, peak - 4000);
  EXPECT_EQ(done.num_operators, 0);
  EXPECT_EQ(done.flops, 0.0);
  EXPECT_EQ(graph.find_nodes("aten::cos").size(), 1U);
  graph.lint();
}

TEST(Rematerialize, OldContentsOfStateAreNotKeptForIt) {
  const Tensor state = torch::randn({1000});
  const auto module_of = [&](bool updates) {
    return with_value_to_spare([&, updates](const Tensor& x) {
      const Tensor value = state.exp();
      if (updates) state.add_(1);
      return value;
    });
  };
  Graph fixed = module_of(false);
  EXPECT_EQ(rematerialize(fixed, memory_of(fixed).peak_bytes - 4000).num_operators, 0);
  Graph updated = module_of(true);
  EXPECT_THAT(error_of([&] { rematerialize(updated, memory_of(updated).peak_bytes - 4000); }),
              StartsWith("graph.budget"));
}

/// Operators on the values there are, among them views and writes in place.
Tensor random_program(std::mt19937& random, const Tensor& x) {
  Tensors values = {x.exp(), x.sin()};
  const auto any = [&] { return values[random() % values.size()]; };
  for (int i = 0; i < 60; ++i) {
    switch (random() % 7) {
      case 0:
        values.push_back(any().sin());
        break;
      case 1:
        values.push_back(any() * any());
        break;
      case 2:
        values.push_back(any().t());
        break;
      case 3:
        any().add_(any().clone());
        break;
      case 4:
        any().select(0, 3).mul_(2);
        break;
      case 5:
        values.push_back(std::get<0>(any().max(0, true)) + any());
        break;
      default:
        values[random() % values.size()] = any().mm(any()) * 0.01;
    }
  }
  Tensor sum = x;
  for (const Tensor& value : values) sum = sum + value;
  return sum;
}

TEST(Rematerialize, RandomProgramsGiveTheSameBitsInAnyBudget) {
  size_t num_fitted = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Subject subject{.function = [seed](const Tensors& inputs) -> Tensors {
                            std::mt19937 random(seed);
                            return {random_program(random, inputs[0])};
                          },
                          .inputs = {torch::randn({12, 12})}};
    const Graph whole = traced(subject);
    const Tensors wanted = interpreted(whole, subject.inputs);
    for (int percent = 95; percent > 20; percent -= 10) {
      Graph fitted = whole.clone();
      const int64_t budget = budget_of(whole, percent / 100.0);
      if (error_of([&] { rematerialize(fitted, budget); }) != "no error") break;
      ++num_fitted;
      fitted.lint();
      EXPECT_LE(memory_of(fitted).peak_bytes, budget);
      expect_same(interpreted(fitted, subject.inputs), wanted, "interpreted");
      expect_same(Replay(fitted)(subject.inputs), wanted, "replayed");
    }
  }
  EXPECT_GT(num_fitted, 60U);
}

TEST(Rematerialize, OfABudgetThatNothingCanMeetIsAnErrorWithTheLeast) {
  auto module = levin::trace([](const Tensor& x) { return x.exp().sin().cos().sum(); },
                             {torch::randn({1000})});
  Graph same = module.graph().clone();
  EXPECT_THAT(
      error_of([&] { rematerialize(same, 100); }),
      StartsWith("graph.budget: got a budget of 100 bytes, but the lowest peak found is 12000"));
  EXPECT_EQ(levin::graph::to_text(same), levin::graph::to_text(module.graph()));
}

TEST(Rematerialize, LeavesAGraphThatFitsAsItIs) {
  auto module = levin::trace([](const Tensor& x) { return (x.exp().sin().cos() * x.exp()).sum(); },
                             {torch::randn({1000})});
  Graph same = module.graph().clone();
  EXPECT_EQ(rematerialize(same, 1 << 20).num_operators, 0);
  EXPECT_EQ(levin::graph::to_text(same), levin::graph::to_text(module.graph()));
}

}  // namespace
