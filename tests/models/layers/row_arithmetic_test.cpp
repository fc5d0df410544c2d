#include "levin/models/layers/row_arithmetic.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace levin::models {
namespace {

TEST(RowProduct, IsThatOfLinear) {
  torch::manual_seed(1);
  const at::NoGradGuard no_grad;
  for (const int64_t in : {1, 15, 16, 40, 257}) {
    for (const int64_t out : {1, 3, 4, 61}) {
      const int64_t texts = 1 + in % 3;
      const at::Tensor x = at::randn({texts, 1, in}), weight = at::randn({out, in}),
                       bias = at::randn({out});
      for (const at::Tensor& added : {at::Tensor(), bias}) {
        const at::Tensor y = row_product(x, weight, added);
        if (!y.defined()) GTEST_SKIP() << "this CPU has not the instructions";
        EXPECT_EQ(y.sizes(), (std::vector<int64_t>{texts, 1, out}));
        const at::Tensor wanted = at::linear(x.to(at::kDouble), weight.to(at::kDouble),
                                             added.defined() ? added.to(at::kDouble) : added);
        EXPECT_LE((y - wanted).abs().max().item<double>(), 1e-5) << in << " " << out;
      }
    }
  }
}

TEST(RowProduct, OfATransposedMatrixIsTheSame) {
  torch::manual_seed(1);
  const at::NoGradGuard no_grad;
  for (const int64_t in : {1, 4, 7, 64}) {
    for (const int64_t out : {1, 15, 16, 61}) {
      const at::Tensor x = at::randn({2, 1, in}), weight = at::randn({in, out}),
                       bias = at::randn({out});
      const at::Tensor y = row_product_transposed(x, weight, bias);
      if (!y.defined()) GTEST_SKIP() << "this CPU has not the instructions";
      const at::Tensor wanted = bias + at::matmul(x.to(at::kDouble), weight.to(at::kDouble));
      EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 1, out}));
      EXPECT_LE((y - wanted).abs().max().item<double>(), 1e-5) << in << " " << out;
    }
  }
  // A view of the bias would be written to.
  const at::Tensor bias = at::zeros({3});
  row_product_transposed(at::ones({1, 1, 2}), at::ones({2, 3}), bias);
  EXPECT_EQ(bias.abs().sum().item<float>(), 0);
}

TEST(RowProduct, LeavesToLinearWhatIsMoreThanArithmetic) {
  const at::Tensor x = at::randn({1, 1, 8}), weight = at::randn({4, 8});
  EXPECT_FALSE(row_product(x, weight, {}).defined());  // gradients
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(row_product(at::randn({1, 2, 8}), weight, {}).defined());
  EXPECT_FALSE(row_product(x.to(at::kBFloat16), weight.to(at::kBFloat16), {}).defined());
  EXPECT_FALSE(row_product(x, at::randn({8, 4}).t(), {}).defined());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(row_product(x, weight, {}).defined());
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(RowRmsNorm, DividesByTheRootMeanSquareOfEachRow) {
  torch::manual_seed(2);
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::randn({24});
  for (const double plus : {0.0, 1.0}) {
    for (const at::Tensor& x : {5 * at::randn({1, 1, 24}), 5 * at::randn({2, 1, 3, 24})}) {
      const at::Tensor wide = x.to(at::kDouble);
      const at::Tensor wanted =
          wide * at::rsqrt(wide.pow(2).mean(-1, true) + 1e-5) * (plus + weight);
      const at::Tensor y = row_rms_norm(x, weight, 1e-5, /*one_plus=*/plus > 0);
      ASSERT_TRUE(y.defined());
      EXPECT_TRUE(at::allclose(y.to(at::kDouble), wanted, 1e-6, 1e-6));
    }
  }
  EXPECT_FALSE(row_rms_norm(at::randn({2, 2, 24}), weight, 1e-5, false).defined());
}

TEST(RowLayerNorm, IsTheOneOfTheOperator) {
  torch::manual_seed(3);
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::randn({23});
  for (const at::Tensor& bias : {at::Tensor(), at::randn({23})}) {
    // Far from zero, too, where a variance by squares alone would lose its digits.
    for (const at::Tensor& x : {at::randn({3, 1, 23}), at::randn({2, 1, 4, 23}) + 1e3}) {
      const at::Tensor added = bias.defined() ? bias.to(at::kDouble) : bias;
      const at::Tensor wanted =
          at::layer_norm(x.to(at::kDouble), {23}, weight.to(at::kDouble), added, 1e-5);
      const at::Tensor y = row_layer_norm(x, weight, bias, 1e-5);
      ASSERT_TRUE(y.defined());
      EXPECT_TRUE(at::allclose(y.to(at::kDouble), wanted, 1e-6, 1e-6));
    }
  }
  EXPECT_FALSE(row_layer_norm(at::randn({2, 2, 23}), weight, {}, 1e-5).defined());
}

TEST(RowRotate, TurnsThePairsOfEachHead) {
  torch::manual_seed(2);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({3, 1, 2, 8});
  for (const int64_t positions : {1, 3}) {
    const at::Tensor cos = at::randn({positions, 1, 1, 4}), sin = at::randn({positions, 1, 1, 4});
    const auto halves = x.chunk(2, -1);
    const at::Tensor wanted =
        at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
    const at::Tensor y = row_rotate(x, cos, sin);
    ASSERT_TRUE(y.defined());
    EXPECT_TRUE(at::allclose(y, wanted, 1e-6, 1e-6));
    EXPECT_FALSE(row_rotate(at::randn({1, 2, 3, 8}), cos, sin).defined());
  }
}

}  // namespace
}  // namespace levin::models
