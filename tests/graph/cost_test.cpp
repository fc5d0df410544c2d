#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/cost/tpu_generations.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/replay/replay.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"
#include "tests/graph/allocation_meter.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::cost_of;
using levin::graph::find_device;
using levin::graph::Graph;
using levin::graph::GraphCost;
using levin::graph::memory_of;
using levin::graph::MemoryProfile;
using levin::graph::MemoryUse;
using levin::test::error_of;
using levin::test::peak_of;
using levin::test::Tensors;
using ::testing::HasSubstr;

double flops_of(const Graph& graph, const std::string& target) {
  double flops = 0.0;
  for (const auto& node : cost_of(graph, *find_device("cpu")).nodes) {
    if (node.node->target() == target) flops += node.flops;
  }
  return flops;
}

TEST(Cost, OfProductsCountsMultiplicationsAndAdditions) {
  torch::nn::Linear linear(16, 4);
  const auto module = levin::trace(
      [&](const Tensor& x) {
        const Tensor loss = linear->forward(x).sum();
        loss.backward();
        return loss;
      },
      {torch::randn({8, 16}).requires_grad_()});
  EXPECT_EQ(flops_of(module.graph(), "aten::addmm"), 2 * 8 * 16 * 4);
  EXPECT_EQ(flops_of(module.graph(), "aten::mm"), 2 * (2 * 8 * 16 * 4));
}

TEST(Cost, TpusAreThoseOfTheOneTableAWholeChipEach) {
  for (const levin::TpuGeneration& tpu : levin::kTpuGenerations) {
    const std::string name(tpu.name);
    const auto device = find_device(name.starts_with("tpu") ? name : "tpu-" + name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(device->half_flops_per_s, tpu.cores_of_chip * tpu.flops_per_s) << name;
    EXPECT_EQ(device->memory_bytes, tpu.cores_of_chip * tpu.hbm_bytes) << name;
  }
  EXPECT_EQ(find_device("tpu-v4")->half_flops_per_s, 275e12);  // Google's figure for a chip
}

TEST(Cost, OfConvolutionsCountsTheWeightsOfEachOutput) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
  const auto module = levin::trace(
      [&](const Tensor& x) {
        const Tensor loss = conv->forward(x).sum();
        loss.backward();
        return loss;
      },
      {torch::randn({2, 3, 8, 8}).requires_grad_()});
  const double forward = 2.0 * (2 * 4 * 8 * 8) * (3 * 3 * 3);
  EXPECT_EQ(flops_of(module.graph(), "aten::convolution"), forward);
  EXPECT_EQ(flops_of(module.graph(), "aten::convolution_backward"), 2 * forward);
}

TEST(Cost, ADeviceIsBoundByArithmeticOrByMemory) {
  const levin::graph::DeviceDescription device{
      .flops_per_s = 1e9, .half_flops_per_s = 1e9, .bytes_per_s = 1e9};
  const auto module =
      levin::trace([](const Tensor& x) { return x.mm(x).exp(); }, {torch::randn({100, 100})});
  const GraphCost cost = cost_of(module.graph(), device);
  ASSERT_EQ(cost.nodes.size(), 2U);
  EXPECT_DOUBLE_EQ(cost.nodes[0].seconds, 2e6 / 1e9);   // products
  EXPECT_DOUBLE_EQ(cost.nodes[1].seconds, 80e3 / 1e9);  // reads and writes 40 kB each
  EXPECT_DOUBLE_EQ(cost.seconds, cost.nodes[0].seconds + cost.nodes[1].seconds);
}

TEST(Memory, IsFreeAgainAfterTheLastReader) {
  const auto module = levin::trace(
      [](const Tensor& x) { return x.exp().sin().cos().view({10, 10}); }, {torch::randn({100})});
  const MemoryProfile profile = memory_of(module.graph());
  EXPECT_EQ(profile.peak_bytes, 1200);  // the input, what is read and what is written
  ASSERT_EQ(profile.alive_at_peak.size(), 3U);
  EXPECT_EQ(profile.alive_at_peak[0].use, MemoryUse::kInput);
  EXPECT_EQ(profile.bytes.size(), module.graph().nodes().size());
}

TEST(Memory, StateIsThereFromTheStartAndAnInputThatNobodyReadsIsNot) {
  const Tensor early = torch::randn({50}), late = torch::randn({70});
  const auto module = levin::trace(
      [&](const Tensor& x, const Tensor&) { return x.exp().sin() * early.sum() + late; },
      {torch::randn({1}), torch::randn({1000})});
  const MemoryProfile profile = memory_of(module.graph());
  EXPECT_EQ(levin::graph::state_bytes(module.graph()), 4 * (1 + 50 + 70));
  EXPECT_EQ(profile.bytes.front(), 4 * (1 + 50 + 70));
  EXPECT_EQ(profile.peak_bytes, 4 * (1 + 50 + 70) + 4 * (1 + 70));  // the sum's two operands
}

TEST(Memory, OfAGraphWithoutTypesIsAnError) {
  Graph graph;
  auto& x = graph.placeholder("x", {});
  graph.set_outputs({&graph.call_function("aten::relu", {x}).output()});
  EXPECT_THAT(error_of([&] { memory_of(graph); }),
              HasSubstr("graph.cost: the result of placeholder has no known type"));
}

TEST(Memory, IsWhatEagerTakesAndReplayTakesNoMore) {
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(torch::nn::Linear(128, 128));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({128})));
  }
  const auto step = [&](const Tensor& x) {
    net->zero_grad();
    const Tensor loss = net->forward(x).pow(2).mean();
    levin::backward(loss);
    return loss.detach();
  };
  const Tensors input = {torch::randn({256, 128})};
  const auto module = levin::trace(step, input, {.state = levin::named_parameters(*net)});
  const MemoryProfile profile = memory_of(module.graph());
  int64_t kept = 0;  // inputs and parameters, which the step does not allocate
  for (const auto& alive : profile.alive_at_peak) {
    if (alive.use == MemoryUse::kInput || alive.use == MemoryUse::kParameter) kept += alive.bytes;
  }
  net->zero_grad();
  const auto eager = static_cast<double>(peak_of([&] { step(input[0]); }));
  EXPECT_NEAR(static_cast<double>(profile.peak_bytes - kept), eager, 0.1 * eager);

  net->zero_grad();
  const auto replayed = static_cast<double>(peak_of([&] {
    levin::graph::Replay replay(module.graph());
    replay(input);
  }));
  EXPECT_LT(replayed, 1.02 * eager);
}

}  // namespace
