#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/error_of.h"

namespace {

using levin::optim::build_optimizer;
using levin::test::error_id;

std::vector<levin::NamedTensor> parameters() {
  return {{"net.0.weight", torch::zeros({2, 2}).requires_grad_()},
          {"net.0.bias", torch::zeros({2}).requires_grad_()},
          {"frozen", torch::zeros({2})}};
}

TEST(BuildOptimizer, GroupsGoByNamePattern) {
  auto config = levin::optim::adamw({.lr = 0.1, .weight_decay = 0.5})
                    .group("*.bias", {.lr = 0.2, .weight_decay = 0.0});
  auto optimizer = build_optimizer(config, parameters());
  ASSERT_EQ(optimizer->groups().size(), 2u);
  EXPECT_EQ(optimizer->groups()[0].lr, 0.2);
  EXPECT_EQ(optimizer->groups()[0].weight_decay, 0.0);
  EXPECT_EQ(optimizer->groups()[1].lr, 0.1);
  EXPECT_EQ(optimizer->groups()[1].weight_decay, 0.5);
}

TEST(BuildOptimizer, LeavesOutWhatCanHaveNoGradientOrDoesNotMatch) {
  auto with_counts = parameters();
  with_counts.push_back({"counts", torch::zeros({2}, torch::kLong)});
  EXPECT_EQ(build_optimizer(levin::optim::sgd(), with_counts)->parameters().size(), 3u);
  auto only_bias = levin::optim::sgd().parameters("*bias");
  EXPECT_EQ(build_optimizer(only_bias, parameters())->parameters().size(), 1u);
}

TEST(BuildOptimizer, MistakesAreNamed) {
  using levin::optim::adam;
  using levin::optim::sgd;
  const auto id = [](levin::OptimizerConfig config) {
    return error_id([&] { build_optimizer(config, parameters()); });
  };
  EXPECT_EQ(id(sgd().parameters("other*")), "optim.parameters");
  EXPECT_EQ(id(sgd().group("other*", {.lr = 1.0})), "optim.group");
  EXPECT_EQ(id(sgd({.lr = -1.0})), "optim.options");
  EXPECT_EQ(id(sgd({.nesterov = true})), "optim.options");
  EXPECT_EQ(id(sgd({.dampening = 0.5})), "optim.options");
  EXPECT_EQ(id(adam({.betas = {1.0, 0.9}})), "optim.options");
  const levin::OptimizerConfig lbfgs =
      levin::optim::torch_optimizer<torch::optim::LBFGS>(torch::optim::LBFGSOptions());
  EXPECT_EQ(id(levin::OptimizerConfig(lbfgs).group("*bias", {.weight_decay = 0.1})),
            "optim.group.weight_decay");
  EXPECT_EQ(error_id([] { sgd().frequency(0); }), "module.optimizer.frequency");
}

TEST(BuildOptimizer, TwoDtypesAreBothUpdated) {
  std::vector<levin::NamedTensor> mixed = {
      {"a", torch::ones({2}).requires_grad_()},
      {"b", torch::ones({2}, torch::kDouble).requires_grad_()}};
  auto optimizer = build_optimizer(levin::optim::sgd({.lr = 1.0}), mixed);
  for (auto& [name, tensor] : mixed) tensor.mutable_grad() = torch::ones_like(tensor);
  optimizer->step();
  EXPECT_EQ(mixed[0].tensor[0].item<double>(), 0.0);
  EXPECT_EQ(mixed[1].tensor[0].item<double>(), 0.0);
}

TEST(BuildOptimizer, HalfTypesAreUpdatedInEveryPlace) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const levin::OptimizerConfig& config :
         {levin::OptimizerConfig(levin::optim::sgd({.lr = 0.1})),
          levin::OptimizerConfig(levin::optim::sgd({.lr = 0.1, .momentum = 0.9})),
          levin::OptimizerConfig(levin::optim::adam({.lr = 0.1})),
          levin::OptimizerConfig(levin::optim::adamw({.lr = 0.1}))}) {
      const at::Tensor weight = torch::ones({101}, type).requires_grad_();
      weight.mutable_grad() = torch::ones({101}, type);
      levin::optim::build_optimizer(config, {{"weight", weight}})->step();
      EXPECT_TRUE(torch::allclose(weight.to(at::kFloat), torch::full({101}, 0.9), 1e-2, 1e-2))
          << config.name() << " of " << type;
    }
  }
}

TEST(BuildOptimizer, ComplexParametersFallBackToTorchOptim) {
  std::vector<levin::NamedTensor> complex = {
      {"c", torch::ones({2}, torch::kComplexFloat).requires_grad_()}};
  auto optimizer = build_optimizer(levin::optim::sgd({.lr = 1.0}), complex);
  complex[0].tensor.mutable_grad() = torch::ones_like(complex[0].tensor);
  optimizer->step();
  EXPECT_EQ(at::abs(complex[0].tensor).sum().item<double>(), 0.0);
}

}  // namespace
