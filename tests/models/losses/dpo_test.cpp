#include "levin/models/losses/dpo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/error_of.h"

namespace levin::models {
namespace {

using ::testing::HasSubstr;

TEST(Dpo, IsMinusTheLogOfThePreferenceAgainstTheReference) {
  const Preferences given{
      .policy = torch::tensor({{-3.0, -5.0}, {-4.0, -2.0}}, at::kDouble).requires_grad_(),
      .reference = torch::tensor({{-4.0, -4.5}, {-4.0, -4.0}}, at::kDouble)};
  const double margins[] = {0.1 * (1.0 + 0.5), 0.1 * (0.0 - 2.0)};
  double wanted = 0, smooth = 0;
  for (const double margin : margins) {
    wanted += std::log1p(std::exp(-margin)) / 2;
    smooth += (0.8 * std::log1p(std::exp(-margin)) + 0.2 * std::log1p(std::exp(margin))) / 2;
  }
  const DpoLoss dpo = dpo_loss(given);
  EXPECT_NEAR(dpo.loss.item<double>(), wanted, 1e-12);
  EXPECT_NEAR(dpo_loss(given, {.label_smoothing = 0.2}).loss.item<double>(), smooth, 1e-12);
  EXPECT_TRUE(at::allclose(dpo.rewards_chosen, at::tensor({0.1, 0.0})));
  EXPECT_TRUE(at::allclose(dpo.rewards_rejected, at::tensor({-0.05, 0.2})));
  EXPECT_TRUE(at::allclose(dpo.rewards_margins(), at::tensor({0.15, -0.2})));
  EXPECT_TRUE(at::equal(dpo.rewards_accuracies(), at::tensor({1.0f, 0.0f})));
  EXPECT_FALSE(dpo.rewards_chosen.requires_grad());
  const at::Tensor gradient = torch::autograd::grad({dpo.loss}, {given.policy})[0];
  const double first = -0.1 / (1 + std::exp(margins[0])) / 2;
  EXPECT_NEAR(gradient[0][0].item<double>(), first, 1e-12);
  EXPECT_NEAR(gradient[0][1].item<double>(), -first, 1e-12);
}

TEST(Dpo, NumbersThatCannotBeAreErrors) {
  const Preferences given{.policy = at::zeros({1, 2}), .reference = at::zeros({1, 2})};
  EXPECT_THAT(test::error_of([&] { dpo_loss(given, {.beta = 0}); }),
              HasSubstr("models.loss.options"));
  EXPECT_THAT(test::error_of([&] { dpo_loss(given, {.label_smoothing = 0.5}); }),
              HasSubstr("models.loss.options"));
}

}  // namespace
}  // namespace levin::models
