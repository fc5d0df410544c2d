#include "levin/optim/clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
TEST(Clip, WithoutGradientsTheNormIsZero) {
  EXPECT_EQ(levin::optim::clip_grad_norm({{"w", torch::ones({2})}}, 1.0).item<double>(), 0.0);
}

TEST(Clip, SmallGradientsStayAsTheyAre) {
  at::Tensor parameter = torch::zeros({2}).requires_grad_();
  parameter.mutable_grad() = torch::tensor({0.3f, 0.4f});
  EXPECT_FLOAT_EQ(levin::optim::clip_grad_norm({{"w", parameter}}, 1.0).item<float>(), 0.5f);
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::tensor({0.3f, 0.4f})));
}

TEST(Clip, NegativeLimitsAreRefused) {
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_norm({}, -1.0); }), "optim.clip");
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_norm({}, 1.0, 0.0); }), "optim.clip");
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_value({}, -1.0); }), "optim.clip");
}

TEST(Clip, ScaleMultipliesEveryGradient) {
  at::Tensor parameter = torch::zeros({2}).requires_grad_();
  parameter.mutable_grad() = torch::ones({2});
  levin::optim::scale_grad({{"w", parameter}}, 0.25);
  EXPECT_EQ(parameter.grad().sum().item<double>(), 0.5);
}

}  // namespace
