// Steps that compute the loss themselves: PreparedOptimizer::step(closure), LBFGS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/optim/optim.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::test::error_of;
using levin::test::run_world;
using small_nets::sequential;
using ::testing::Each;
using ::testing::HasSubstr;

torch::optim::LBFGSOptions searching() {
  return torch::optim::LBFGSOptions(0.5).max_iter(6).line_search_fn("strong_wolfe");
}
at::Tensor inputs() { return torch::sin(torch::arange(8 * 6).view({8, 6}) * 0.7); }

std::vector<at::Tensor> values_of(const torch::nn::Sequential& net) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : net->parameters()) {
    values.push_back(parameter.detach().cpu().clone());
  }
  return values;
}

std::string difference(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!torch::allclose(got[i], wanted[i], 1e-4, 1e-5)) return "weight " + std::to_string(i);
  }
  return "";
}

template <class Optimizer, class Options>
std::vector<at::Tensor> by_hand(const Options& options, double& first_loss) {
  auto net = sequential();
  Optimizer optimizer(net->parameters(), options);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor value = torch::mse_loss(net->forward(inputs()), inputs().narrow(1, 0, 2));
      value.backward();
      return value;
    });
    if (step == 0) first_loss = loss.template item<double>();
  }
  return values_of(net);
}

/// The optimizer's config, or what torch_optimizer gives.
template <class Config>
std::vector<at::Tensor> prepared(const AcceleratorOptions& options, const Config& config,
                                 double& first_loss) {
  Accelerator accelerator(options);
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(net, config);
  const at::Tensor x = accelerator.split_between_processes(inputs()).to(accelerator.device());
  for (int step = 0; step < 4; ++step) {
    const at::Tensor loss = optimizer.step([&, &model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      at::Tensor value = torch::mse_loss(model->forward(x), x.narrow(1, 0, 2));
      accelerator.backward(value);
      return value;
    });
    if (step == 0) first_loss = loss.template item<double>();
  }
  return values_of(net);
}

AcceleratorOptions on_cpu() {
  AcceleratorOptions options;
  options.cpu = true;
  return options;
}

TEST(StepWithClosure, OfLbfgsEqualsLibTorch) {
  double wanted_loss = 0, loss = 0;
  const auto wanted = by_hand<torch::optim::LBFGS>(searching(), wanted_loss);
  const auto lbfgs = levin::optim::torch_optimizer<torch::optim::LBFGS>(searching());
  EXPECT_EQ(difference(prepared(on_cpu(), lbfgs, loss), wanted), "");
  EXPECT_EQ(loss, wanted_loss);
}

TEST(StepWithClosure, OfLbfgsOverTwoRanksEqualsLibTorchOnAllRows) {
  double wanted_loss = 0;
  const auto wanted = by_hand<torch::optim::LBFGS>(searching(), wanted_loss);
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const auto&) {
                          double loss = 0;
                          const auto lbfgs =
                              levin::optim::torch_optimizer<torch::optim::LBFGS>(searching());
                          return difference(prepared(on_cpu(), lbfgs, loss), wanted);
                        }),
              Each(""));
}

TEST(StepWithClosure, OfLbfgsOnXlaEqualsLibTorch) {
  LEVIN_NEEDS_CPU_PLUGIN();
  double wanted_loss = 0, loss = 0;
  const auto wanted = by_hand<torch::optim::LBFGS>(searching(), wanted_loss);
  AcceleratorOptions options;
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  const auto lbfgs = levin::optim::torch_optimizer<torch::optim::LBFGS>(searching());
  EXPECT_EQ(difference(prepared(options, lbfgs, loss), wanted), "");
}

TEST(StepWithClosure, OfOtherOptimizersIsABackwardAndAStep) {
  double wanted_loss = 0, loss = 0;
  const auto wanted =
      by_hand<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9), wanted_loss);
  EXPECT_EQ(
      difference(prepared(on_cpu(), levin::optim::sgd({.lr = 0.1, .momentum = 0.9}), loss), wanted),
      "");
  EXPECT_EQ(loss, wanted_loss);
  const auto torchs =
      levin::optim::torch_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_EQ(difference(prepared(on_cpu(), torchs, loss), wanted), "");
}

TEST(StepWithClosure, OfLbfgsGoesOnFromASavedState) {
  const levin::test::Scratch scratch;
  const auto run = [&](int from, int to) {
    Accelerator accelerator(on_cpu());
    auto net = sequential();
    auto [model, optimizer] =
        accelerator.prepare(net, levin::optim::torch_optimizer<torch::optim::LBFGS>(searching()));
    if (from > 0) accelerator.load_state(scratch / "state");
    for (int step = from; step < to; ++step) {
      optimizer.step([&, &model = model, &optimizer = optimizer] {
        optimizer.zero_grad();
        at::Tensor value = torch::mse_loss(model->forward(inputs()), inputs().narrow(1, 0, 2));
        accelerator.backward(value);
        return value;
      });
      if (step == 1) accelerator.save_state(scratch / "state");
    }
    return values_of(net);
  };
  const auto whole = run(0, 4);
  const auto resumed = run(2, 4);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::equal(whole[i], resumed[i])) << i;
}

/// What a step of LBFGS says under these options.
std::string refused(const AcceleratorOptions& options) {
  return error_of([&] {
    double loss = 0;
    prepared(options, levin::optim::torch_optimizer<torch::optim::LBFGS>(searching()), loss);
  });
}

TEST(StepWithClosure, OfLbfgsIsRefusedByNameWhereItCannotBe) {
  AcceleratorOptions accumulating = on_cpu(), scaled = on_cpu(), guarded = on_cpu();
  accumulating.gradient_accumulation_steps = 2;
  EXPECT_THAT(refused(accumulating), HasSubstr("optim.closure: torch::optim::LBFGS"));
  EXPECT_THAT(refused(accumulating), HasSubstr("gradient accumulation"));
  scaled.mixed_precision = "fp16";
  EXPECT_THAT(refused(scaled), HasSubstr("the loss scale of 16-mixed"));
  guarded.engine.loss_guard.nan_policy = "skip";
  EXPECT_THAT(refused(guarded), HasSubstr("nan_policy"));
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const auto&) {
                          AcceleratorOptions divided = on_cpu();
                          divided.strategy = "fsdp";
                          return refused(divided).substr(0, 40);
                        }),
              Each("optim.torch.divided: torch::optim::LBFGS"));
}

TEST(StepWithClosure, OfLbfgsIsNotReplayedAndSaysSo) {
  AcceleratorOptions options = on_cpu();
  options.engine.compile = "replay";
  Accelerator accelerator(options);
  auto net = sequential();
  auto [prepared_net, lbfgs] =
      accelerator.prepare(net, levin::optim::torch_optimizer<torch::optim::LBFGS>(searching()));
  auto& model = prepared_net;
  auto& optimizer = lbfgs;
  auto step = accelerator.compile([&](const at::Tensor& x) {
    return optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor value = torch::mse_loss(model->forward(x), x.narrow(1, 0, 2));
      accelerator.backward(value);
      return value;
    });
  });
  for (int i = 0; i < 4; ++i) step(inputs());
  EXPECT_EQ(step.report().replayed, 0);
  EXPECT_GT(step.report().refusals.size(), 0u);
  double loss = 0;
  EXPECT_EQ(difference(values_of(net), by_hand<torch::optim::LBFGS>(searching(), loss)), "");
}

TEST(StepWithClosure, IsNeededByLbfgs) {
  Accelerator accelerator(on_cpu());
  auto [model, optimizer] = accelerator.prepare(
      sequential(), levin::optim::torch_optimizer<torch::optim::LBFGS>(searching()));
  accelerator.backward(model->forward(inputs()).mean());
  EXPECT_THAT(error_of([&, &optimizer = optimizer] { optimizer.step(); }),
              HasSubstr("optim.closure: torch::optim::LBFGS computes the loss several times"));
  EXPECT_THAT(
      error_of([&, &optimizer = optimizer] { optimizer.step([] { return at::Tensor(); }); }),
      HasSubstr("optim.closure: the closure given to"));
}

}  // namespace
