#include "levin/module/module.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
struct Bare : levin::Module {
  at::Tensor training_step(const levin::Batch&, int64_t) override { return {}; }
};

TEST(Module, WhatIsNotOverriddenIsNamedWhenNeeded) {
  Bare module;
  EXPECT_EQ(error_id([&] { module.configure_optimizers(); }), "module.configure_optimizers");
  EXPECT_EQ(error_id([&] { module.predict_step({}, 0); }), "module.predict_step");
  EXPECT_EQ(error_id([&] { levin::Module().training_step({}, 0); }), "module.training_step");
}

TEST(Module, OutsideOfARunThereIsNoContext) {
  Bare module;
  EXPECT_EQ(error_id([&] { module.optimizer(); }), "module.context");
  EXPECT_EQ(error_id([&] { module.manual_backward(torch::ones({})); }), "module.context");
  EXPECT_EQ(error_id([&] { module.global_step(); }), "module.context");
  EXPECT_NO_THROW(module.log("loss", 1.0));
}

TEST(OptimizerConfig, SeveralAreOneList) {
  torch::nn::Linear a(1, 1), b(1, 1);
  const levin::OptimizerConfig both = {levin::optim::sgd().of(a), levin::optim::adam().of(b)};
  ASSERT_EQ(both.list().size(), 2u);
  EXPECT_EQ(both.list()[0].name(), "sgd");
  EXPECT_EQ(both.list()[1].module(), b.get());
  EXPECT_EQ(levin::OptimizerConfig(levin::optim::adamw({.lr = 0.5})).list().at(0).lr(), 0.5);
}

TEST(OptimizerConfig, PatternsKnowStarAndQuestionMark) {
  EXPECT_TRUE(levin::matches("*", "net.0.weight"));
  EXPECT_TRUE(levin::matches("net.?.weight", "net.0.weight"));
  EXPECT_TRUE(levin::matches("*.bias", "a.b.bias"));
  EXPECT_FALSE(levin::matches("*.bias", "a.b.biases"));
}

}  // namespace
