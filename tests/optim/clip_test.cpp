#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
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

at::Tensor with_gradient(const at::Tensor& gradient) {
  at::Tensor parameter = torch::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
  parameter.set_requires_grad(true).mutable_grad() = gradient;
  return parameter;
}

/// Rows of a table that a batch looked up twice count as their sum.
TEST(Clip, OfSparseGradientsEqualsThatOfDenseOnes) {
  const at::Tensor rows = torch::tensor({1, 3, 1});
  const auto gradient_of = [&](bool sparse, auto&& change) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(sparse));
    (net->forward(rows).sum() * 3).backward();
    at::Tensor dense = torch::zeros({3}).requires_grad_();
    dense.mutable_grad() = torch::ones({3});
    change(std::vector<levin::NamedTensor>{{"table", net->weight}, {"dense", dense}});
    EXPECT_EQ(net->weight.grad().is_sparse(), sparse);
    return torch::cat({net->weight.grad().to_dense().flatten(), dense.grad()});
  };
  const auto expect_same = [&](auto&& change) {
    EXPECT_TRUE(torch::allclose(gradient_of(true, change), gradient_of(false, change)));
  };
  using Parameters = std::vector<levin::NamedTensor>;
  expect_same([](const Parameters& all) { levin::optim::clip_grad_norm(all, 0.5); });
  expect_same([](const Parameters& all) { levin::optim::clip_grad_value(all, 4.0); });
  expect_same([](const Parameters& all) { levin::optim::scale_grad(all, 0.25); });
}

TEST(Clip, GradientsOfOtherLayoutsAreAnErrorThatNamesThem) {
  at::Tensor parameter = torch::ones({2, 2}).requires_grad_();
  parameter.mutable_grad() = torch::ones({2, 2}).to_sparse_csr();
  EXPECT_THAT(levin::test::error_of([&] { levin::optim::clip_grad_norm({{"w", parameter}}, 1.0); }),
              testing::StartsWith("optim.clip: the gradient of w has layout SparseCsr"));
}

TEST(Clip, WhatHasNoValuesHasNoNorm) {
  for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const at::Tensor empty = with_gradient(torch::ones({0, 3}));
    const at::Tensor one = with_gradient(torch::full({1}, 2.0));
    const std::vector<levin::NamedTensor> all = {{"empty", empty}, {"one", one}};
    EXPECT_FLOAT_EQ(levin::optim::clip_grad_norm(all, 1.0, norm_type).item<float>(), 2.0f);
    EXPECT_NEAR(one.grad().item<float>(), 1.0f, 1e-5);
    EXPECT_EQ(levin::optim::clip_grad_norm({{"empty", empty}}, 1.0, norm_type).item<float>(), 0.0f);
    levin::optim::clip_grad_value(all, 0.5);
    EXPECT_EQ(one.grad().item<float>(), 0.5f);
  }
}

/// Neither 2e5 nor the squares of 1000 that it is of fit into float16.
TEST(Clip, TheNormOfHalfGradientsIsNotOneOfTheirType) {
  for (const bool mixed : {false, true}) {
    const at::Tensor half = with_gradient(torch::full({40000}, 1000.0, at::kHalf));
    std::vector<levin::NamedTensor> all = {{"half", half}};
    if (mixed) all.push_back({"whole", with_gradient(torch::ones({1}))});
    const at::Tensor norm = levin::optim::clip_grad_norm(all, 2e5);
    EXPECT_EQ(norm.scalar_type(), at::kFloat);
    EXPECT_NEAR(norm.item<double>(), 2e5, 20.0);
    EXPECT_NEAR(half.grad()[7].item<double>(), 1000.0, 1.0);
  }
}

/// As torch.nn.utils.clip_grad_norm_ unless error_if_nonfinite.
TEST(Clip, ANormThatIsNoNumberIsToldAndLeavesNone) {
  const at::Tensor bad = with_gradient(torch::tensor({1.0f, NAN}));
  const at::Tensor good = with_gradient(torch::ones({2}));
  const at::Tensor norm = levin::optim::clip_grad_norm({{"bad", bad}, {"good", good}}, 1.0);
  EXPECT_TRUE(std::isnan(norm.item<double>()));
  EXPECT_TRUE(good.grad().isnan().all().item<bool>());
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_norm({}, NAN); }), "optim.clip");
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_norm({}, 1.0, NAN); }), "optim.clip");
  EXPECT_EQ(error_id([&] { levin::optim::clip_grad_value({}, NAN); }), "optim.clip");
}

TEST(Clip, ScaleMultipliesEveryGradient) {
  at::Tensor parameter = torch::zeros({2}).requires_grad_();
  parameter.mutable_grad() = torch::ones({2});
  levin::optim::scale_grad({{"w", parameter}}, 0.25);
  EXPECT_EQ(parameter.grad().sum().item<double>(), 0.5);
}

}  // namespace
