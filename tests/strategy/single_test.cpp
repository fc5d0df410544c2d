#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/optim/optim.h"
#include "levin/strategy/strategies.h"

namespace {

using levin::State;

std::unique_ptr<levin::Strategy> single() { return levin::make_strategy("single", {}); }

/// Linear, BatchNorm1d (which has buffers), Linear; the same weights each time.
torch::nn::Sequential net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5),
                               torch::nn::Linear(5, 2));
}

at::Tensor input() {
  return torch::randn({8, 4}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{7}));
}

/// One backward pass; gradients add up over calls.
void backward(levin::Strategy& strategy, torch::nn::Sequential& module, bool synchronize = true) {
  strategy.backward(module->forward(input()).square().sum(), synchronize);
}

std::vector<at::Tensor> gradients(const torch::nn::Sequential& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(Single, ReadsTheWholeOfTheData) {
  EXPECT_EQ(single()->slice().rank, 0);
  EXPECT_EQ(single()->slice().world_size, 1);
}

TEST(Single, SetupPlacesParametersAndBuffersOnTheDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is one device only";
  auto module = net();
  single()->setup(*module, at::kCUDA);
  for (const at::Tensor& parameter : module->parameters()) EXPECT_TRUE(parameter.is_cuda());
  for (const at::Tensor& buffer : module->buffers()) EXPECT_TRUE(buffer.is_cuda());
}

TEST(Single, SetupLeavesAModuleThatIsThereAlreadyInItsMemory) {
  auto module = net();
  const auto before = module->parameters();
  single()->setup(*module, at::kCPU);
  const auto after = module->parameters();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].is_same(before[i])) << i;
}

TEST(Single, BackwardGivesTheLossesGradients) {
  auto module = net();
  backward(*single(), module);
  auto reference = net();
  reference->forward(input()).square().sum().backward();
  expect_equal(gradients(module), gradients(reference));
}

TEST(Single, BackwardWithoutSynchronizationGivesTheSameGradients) {
  auto module = net();
  backward(*single(), module, /*synchronize=*/false);
  auto reference = net();
  backward(*single(), reference);
  expect_equal(gradients(module), gradients(reference));
}

TEST(Single, GradientsAddUpOverBackwardCalls) {
  auto module = net();
  module->eval();
  backward(*single(), module, /*synchronize=*/false);
  auto wanted = gradients(module);
  for (at::Tensor& gradient : wanted) gradient.mul_(2);
  backward(*single(), module);
  expect_equal(gradients(module), wanted);
}

struct Clip {
  double max_norm;
  double norm_type;
};

void PrintTo(const Clip& clip, std::ostream* out) {
  *out << "max_norm " << clip.max_norm << ", norm_type " << clip.norm_type;
}

class SingleClip : public ::testing::TestWithParam<Clip> {};

TEST_P(SingleClip, EqualsTorch) {
  const auto [max_norm, norm_type] = GetParam();
  auto module = net();
  backward(*single(), module);
  auto reference = net();
  backward(*single(), reference);
  const double wanted =
      torch::nn::utils::clip_grad_norm_(reference->parameters(), max_norm, norm_type);
  const at::Tensor norm =
      single()->clip_grad_norm(levin::named_parameters(*module), max_norm, norm_type);
  EXPECT_NEAR(norm.item<double>(), wanted, 1e-5 * wanted);
  const auto mine = gradients(module);
  const auto theirs = gradients(reference);
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-5, 1e-8)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, SingleClip,
                         ::testing::Values(Clip{0.1, 2.0}, Clip{1e6, 2.0}, Clip{0.1, 1.0},
                                           Clip{0.1, 3.0}, Clip{0.0, 2.0},
                                           Clip{0.1, std::numeric_limits<double>::infinity()}));

TEST(Single, TheBuiltOptimizerEqualsTorch) {
  auto module = net();
  auto strategy = single();
  const auto optimizer = strategy->build_optimizer(levin::optim::sgd({.lr = 0.1, .momentum = 0.9}),
                                                   levin::named_parameters(*module));
  auto reference = net();
  torch::optim::SGD torch_optimizer(reference->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    torch_optimizer.zero_grad();
    backward(*strategy, module);
    reference->forward(input()).square().sum().backward();
    optimizer->step();
    torch_optimizer.step();
  }
  const auto mine = module->parameters();
  const auto theirs = reference->parameters();
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-5, 1e-7)) << i;
  }
}

/// Steps of AdamW; the state is taken out and put into a new optimizer after `reload_after`.
std::vector<at::Tensor> weights_after_steps(int64_t reload_after) {
  auto module = net();
  auto strategy = single();
  const auto build = [&] {
    return strategy->build_optimizer(levin::optim::adamw({.lr = 0.05}),
                                     levin::named_parameters(*module));
  };
  auto optimizer = build();
  for (int64_t step = 0; step < 6; ++step) {
    if (step == reload_after) {
      const State state = optimizer->state_dict();
      auto fresh = build();
      fresh->load_state_dict(state);
      optimizer = std::move(fresh);
    }
    optimizer->zero_grad();
    backward(*strategy, module);
    optimizer->step();
  }
  return module->parameters();
}

TEST(Single, AnOptimizersStateInANewOneGoesOnBitForBit) {
  expect_equal(weights_after_steps(3), weights_after_steps(-1));
}

}  // namespace
