// A replay by graphs of its device: what is captured, and that it is what eager does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/replay.h"
#include "levin/graph/trace.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"
#include "tests/graph/recorded_device.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::Replay;
using levin::test::error_of;
using levin::test::expect_same;
using levin::test::RecordedDevice;
using levin::test::same_bits;
using levin::test::Tensors;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Operators of the test's own, which no graph of a device captures: one that allocates, one that
/// writes.
Tensor twice_on_host(const Tensor& x) { return x + x; }
Tensor& add_one_on_host(Tensor& x) { return x.add_(1); }
TORCH_LIBRARY(levin_test_device, library) {
  library.def("twice(Tensor x) -> Tensor");
  library.def("add_one_(Tensor(a!) x) -> Tensor(a!)");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CPU, &twice_on_host));
  library.impl("add_one_", torch::dispatch(c10::DispatchKey::CPU, &add_one_on_host));
}
Tensor host_twice(const Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("levin_test_device::twice", "")
      .typed<Tensor(const Tensor&)>()
      .call(x);
}
Tensor& add_one_(Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("levin_test_device::add_one_", "")
      .typed<Tensor&(Tensor&)>()
      .call(x);
}

/// Replays of the function with one argument, of which each call is held to the function itself.
RecordedDevice::Log expect_replays_equal(const std::function<Tensor(const Tensor&)>& function) {
  const auto input = [](int64_t number) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
    return torch::randn({6, 8}, random);
  };
  RecordedDevice::Log log;
  Replay replay(levin::trace([&](const Tensor& x) { return function(x); }, {input(0)}).graph(),
                std::make_unique<RecordedDevice>(log));
  std::vector<Tensor> kept;  // so that each call's input lies elsewhere
  for (int64_t i = 0; i < 8; ++i) {
    const Tensor& x = kept.emplace_back(input(i));
    torch::manual_seed(i);
    const Tensor wanted = function(x);
    torch::manual_seed(i);
    EXPECT_TRUE(same_bits(replay({x}).front(), wanted)) << "call " << i;
  }
  return log;
}

TEST(DeviceGraphs, AreCapturedAfterTwoWarmUpsAndThenLaunched) {
  const auto log = expect_replays_equal([](const Tensor& x) { return x.mul(2).relu().sum(1); });
  EXPECT_EQ(log.num_warm_ups, 2);
  EXPECT_THAT(log.launches, ElementsAre(6));
}

TEST(DeviceGraphs, KeepWhereAllocatedResultsLie) {
  const auto log = expect_replays_equal([](const Tensor& x) {
    const auto [sorted, indices] = x.mul(3).sort();
    const Tensor normed = torch::layer_norm(sorted, {8});
    return torch::dropout(normed.gather(1, indices), 0.5, true);
  });
  EXPECT_THAT(log.launches, ElementsAre(6));
}

TEST(DeviceGraphs, LeaveOutWhatRunsOnTheHost) {
  const auto log = expect_replays_equal([](const Tensor& x) {
    Tensor y = x.exp();                          // captured
    add_one_(y);                                 // on the host, where it lies
    const Tensor z = torch::layer_norm(y, {8});  // captured; allocates
    const Tensor moving = host_twice(z);         // on the host, elsewhere each time
    const Tensor reader = moving.sin();          // reads that
    return reader.cos() + z.mul(2) + y;          // captured
  });
  EXPECT_THAT(log.launches, ElementsAre(6, 6, 6));
}

TEST(DeviceGraphs, OfNothingAreNotMade) {
  EXPECT_THAT(expect_replays_equal([](const Tensor& x) { return host_twice(x); }).launches,
              ElementsAre());
}

TEST(DeviceGraphs, WriteToTheCallersInput) {
  RecordedDevice::Log log;
  Replay replay(
      levin::trace([](const Tensor& x) { return x.add_(1).sum(); }, {torch::zeros({3})}).graph(),
      std::make_unique<RecordedDevice>(log));
  for (int i = 0; i < 5; ++i) {
    const Tensor x = torch::full({3}, 1.0 * i);
    replay({x});
    EXPECT_TRUE(torch::equal(x, torch::full({3}, i + 1.0))) << i;
  }
  EXPECT_THAT(log.launches, ElementsAre(3));
}

struct Network {
  torch::nn::Sequential net{
      torch::nn::Linear(64, 32), torch::nn::BatchNorm1d(32),
      torch::nn::GELU(),         torch::nn::Dropout(0.3),
      torch::nn::Linear(32, 32), torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})),
      torch::nn::Linear(32, 5)};
  std::unique_ptr<levin::optim::Optimizer> optimizer;

  explicit Network(at::Device device) {
    torch::manual_seed(7);
    for (auto& parameter : net->parameters()) {
      const at::NoGradGuard no_grad;
      parameter.copy_(torch::randn(parameter.sizes()) * 0.2);
    }
    net->to(device);
    optimizer = levin::optim::build_optimizer(levin::optim::adamw({.lr = 0.01}),
                                              levin::named_parameters(*net));
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    optimizer->zero_grad();
    const Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    levin::backward(loss);
    optimizer->step();
    return loss;
  }
};

/// 40 steps whose learning rate falls, by eager and by a replay on these graphs.
void expect_training_equals_eager(
    at::Device device, const std::function<Replay(const levin::graph::Graph&)>& make_replay) {
  const auto losses = [&](Network& network, bool replays) {
    torch::manual_seed(11);
    EXPECT_TRUE(network.optimizer->set_capturable(replays));
    Tensors losses;
    std::optional<Replay> replay;
    std::function<void()> host_part;
    for (int64_t i = 0; i < 40; ++i) {
      network.optimizer->groups()[0].lr = 0.01 / static_cast<double>(i + 1);
      auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(i));
      const Tensor x = torch::randn({16, 64}, random).to(device);
      const Tensor y = torch::randint(0, 5, {16}, random, torch::kLong).to(device);
      const auto step = [&](const Tensor& a, const Tensor& b) { return network.step(a, b); };
      if (replays && i == 1) {
        const auto module = levin::trace(
            [&](const Tensor& a, const Tensor& b) { return losses.emplace_back(step(a, b)); },
            {x, y});
        replay.emplace(make_replay(module.graph()));
        host_part = network.optimizer->host_part();
        EXPECT_GT(replay->report().num_captured, 10);
      } else {
        if (replay) host_part();
        losses.push_back(replay ? (*replay)({x, y}).front() : step(x, y));
      }
    }
    return levin::test::copies_of(losses);
  };
  Network replayed(device), eager(device);
  expect_same(levin::test::copies_of(losses(replayed, true)), losses(eager, false), "loss");
  const auto mine = replayed.net->named_parameters();
  for (const auto& item : eager.net->named_parameters()) {
    EXPECT_TRUE(same_bits(mine[item.key()].cpu(), item.value().cpu())) << item.key();
  }
}

TEST(DeviceGraphs, OfATrainingStepEqualEager) {
  RecordedDevice::Log log;
  expect_training_equals_eager(at::kCPU, [&](const levin::graph::Graph& graph) {
    return Replay(graph, std::make_unique<RecordedDevice>(log));
  });
  EXPECT_THAT(log.launches, AllOf(::testing::SizeIs(1), Each(36)));
}

TEST(DeviceGraphs, OnCudaEqualEager) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  expect_training_equals_eager(at::Device(at::kCUDA, 0),
                               [](const levin::graph::Graph& graph) { return Replay(graph); });
}

/// As a GPU does where the host waits for it in the course of a capture.
class NothingCanBeCaptured final : public levin::graph::DeviceGraphs {
 public:
  c10::Device device() const override { return at::kCPU; }
  void warm_up(const Run& run) override { run(); }
  size_t capture(const Run& run) override {
    run();
    TORCH_CHECK(false, "operation not permitted when stream is capturing");
  }
  void launch(size_t) override {}
};

TEST(DeviceGraphs, OfAnOperatorThatCannotBeCapturedIsAnError) {
  Replay replay(
      levin::trace([](const Tensor& x) { return x.cumsum(0); }, {torch::ones({3})}).graph(),
      std::make_unique<NothingCanBeCaptured>());
  for (int i = 0; i < 2; ++i) replay({torch::ones({3})});
  EXPECT_THAT(error_of([&] { replay({torch::ones({3})}); }),
              AllOf(StartsWith("graph.replay.capture: aten::cumsum"), HasSubstr("not permitted")));
}

}  // namespace
