#include "levin/optim/master_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/optim/optim.h"
#include "tests/support/error_of.h"

namespace {

using levin::optim::build_optimizer;
using levin::test::error_of;
using ::testing::StartsWith;

struct Half {
  at::Tensor weight;
  std::unique_ptr<levin::optim::Optimizer> optimizer;

  explicit Half(levin::OptimizerConfig config, at::ScalarType type = at::kBFloat16)
      : weight(torch::ones({3}, type).requires_grad_()),
        optimizer(build_optimizer(config.master_weights(), {{"weight", weight}})) {}

  void step(double gradient) {
    weight.mutable_grad() = torch::full({3}, gradient, weight.scalar_type());
    optimizer->step();
  }
};

TEST(MasterWeights, KeepWhatTheHalfTypeRoundsAway) {
  Half half(levin::optim::sgd({.lr = 1.0}));
  const at::Tensor plain = torch::ones({3}, at::kBFloat16).requires_grad_();
  const auto without = build_optimizer(levin::optim::sgd({.lr = 1.0}), {{"weight", plain}});
  for (int step = 0; step < 64; ++step) {
    half.step(1.0 / 1024);  // a bfloat16 below 1 is at least 1/256 from the next
    plain.mutable_grad() = torch::full({3}, 1.0 / 1024, at::kBFloat16);
    without->step();
  }
  EXPECT_TRUE(torch::equal(half.weight, torch::full({3}, 1.0 - 64.0 / 1024, at::kBFloat16)));
  EXPECT_TRUE(torch::equal(plain, torch::ones({3}, at::kBFloat16)));
}

TEST(MasterWeights, EqualAnOptimizerOfFloat32ParametersRoundedAtTheEnd) {
  for (const levin::OptimizerConfig& config :
       {levin::OptimizerConfig(levin::optim::sgd({.lr = 0.1, .momentum = 0.9})),
        levin::OptimizerConfig(levin::optim::adamw({.lr = 0.01})),
        levin::OptimizerConfig(levin::optim::torch_optimizer<torch::optim::RMSprop>(
            torch::optim::RMSpropOptions(0.01)))}) {
    Half half(config);
    const at::Tensor whole = torch::ones({3}).requires_grad_();
    const auto reference = build_optimizer(config, {{"weight", whole}});
    for (int step = 0; step < 20; ++step) {
      const double gradient = 0.1 * step - 0.7;
      half.step(gradient);
      whole.mutable_grad() = torch::full({3}, gradient, at::kBFloat16).to(at::kFloat);
      reference->step();
    }
    EXPECT_TRUE(torch::equal(half.weight, whole.to(at::kBFloat16))) << config.name();
  }
}

TEST(MasterWeights, AreInTheStateAndGoOnFromIt) {
  Half first(levin::optim::adamw({.lr = 1e-3})), second(levin::optim::adamw({.lr = 1e-3}));
  for (int step = 0; step < 5; ++step) first.step(0.3);
  const levin::State state = first.optimizer->state_dict();
  EXPECT_EQ(state.child("parameters").child("weight").tensor("master").scalar_type(), at::kFloat);
  {
    const torch::NoGradGuard no_grad;
    second.weight.copy_(first.weight);
  }
  second.optimizer->load_state_dict(state);
  for (int step = 0; step < 5; ++step) {
    first.step(-0.1);
    second.step(-0.1);
  }
  const auto master = [](Half& half) {
    return half.optimizer->state_dict().child("parameters").child("weight").tensor("master");
  };
  EXPECT_TRUE(torch::equal(master(first), master(second)));
  EXPECT_TRUE(torch::equal(first.weight, second.weight));
}

TEST(MasterWeights, FollowParametersThatSomebodyElseWrote) {
  Half half(levin::optim::sgd({.lr = 1.0}));
  half.step(0.25);
  {
    const torch::NoGradGuard no_grad;
    half.weight.fill_(8.0);
  }
  half.step(0.5);
  EXPECT_TRUE(torch::equal(half.weight, torch::full({3}, 7.5, at::kBFloat16)));
}

TEST(MasterWeights, OfAStateOfAnotherShapeAreAnError) {
  Half half(levin::optim::sgd({.lr = 1.0}));
  const at::Tensor other = torch::ones({4}, at::kBFloat16).requires_grad_();
  auto config = levin::OptimizerConfig(levin::optim::sgd({.lr = 1.0}));
  const auto larger = build_optimizer(config.master_weights(), {{"weight", other}});
  EXPECT_THAT(
      error_of([&] { half.optimizer->load_state_dict(larger->state_dict()); }),
      StartsWith("optim.state.shape: master of weight has a wrong shape: got [4], wanted [3]"));
}

TEST(MasterWeights, OfFloat32ParametersAreTheParameters) {
  Half whole(levin::optim::sgd({.lr = 1.0}), at::kFloat);
  EXPECT_FALSE(
      whole.optimizer->state_dict().child("parameters").child("weight").contains("master"));
}

}  // namespace
