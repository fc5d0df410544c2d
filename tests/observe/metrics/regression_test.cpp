#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "levin/observe/metric.h"
#include "tests/support/error_of.h"

namespace levin::metrics::regression_test {
namespace {

using test::error_of;
using ::testing::HasSubstr;

double read(const Metric& metric) { return metric.compute().item<double>(); }

/// Found 1 2 4 5, wanted 1 3 2 6: errors 0 -1 2 -1; wanted has the mean 3 and squares 4 0 1 9 from it.
template <class Kind>
double of_four(const RegressionOptions& options = {}) {
  Kind metric(options);
  metric.update(at::tensor({1.0, 2.0, 4.0}), at::tensor({1.0, 3.0, 2.0}));
  Kind other(options);
  other.update(at::tensor({5}), at::tensor({6}));  // integers
  metric.merge(other.state_dict());
  return read(metric);
}

TEST(Regression, ByHand) {
  EXPECT_NEAR(of_four<MeanAbsoluteError>(), 4.0 / 4, 1e-12);
  EXPECT_NEAR(of_four<MeanSquaredError>(), 6.0 / 4, 1e-12);
  EXPECT_NEAR(of_four<MeanSquaredError>({.squared = false}), std::sqrt(1.5), 1e-12);
  EXPECT_NEAR(of_four<R2Score>(), 1 - 6.0 / 14, 1e-12);
  EXPECT_NEAR(of_four<R2Score>({.adjusted = 1}), 1 - 6.0 / 14 * 3 / 2, 1e-12);
  // From the means 3 and 3: (-2, -1, 1, 2) and (-2, 0, -1, 3).
  EXPECT_NEAR(of_four<PearsonCorrCoef>(), 9 / std::sqrt(10.0 * 14), 1e-12);
  // Ranks 1 2 3 4 and 1 3 2 4.
  EXPECT_NEAR(of_four<SpearmanCorrCoef>(), 0.8, 1e-12);
}

/// scipy.stats.spearmanr([1, 2, 2, 4, 5], [2, 1, 3, 3, 9]): ranks 1 2.5 2.5 4 5 and 2 1 3.5 3.5 5.
TEST(SpearmanCorrCoef, TiesHaveTheMeanOfTheirRanks) {
  SpearmanCorrCoef spearman, other;
  spearman.update(at::tensor({1.0, 2.0, 2.0}), at::tensor({2.0, 1.0, 3.0}));
  other.update(at::tensor({4.0, 5.0}), at::tensor({3.0, 9.0}));
  spearman.merge(other.state_dict());
  EXPECT_NEAR(read(spearman), 7.25 / 9.5, 1e-12);
}

TEST(Regression, SeveralOutputsEachHaveAValue) {
  const at::Tensor found = at::tensor({1.0, 5.0, 2.0, 5.0}).view({2, 2});
  const at::Tensor wanted = at::tensor({1.0, 4.0, 4.0, 8.0}).view({2, 2});
  MeanAbsoluteError error({.num_outputs = 2});
  error.update(found, wanted);
  EXPECT_TRUE(at::equal(error.compute(), at::tensor({1.0, 2.0}, at::kDouble)));
  EXPECT_FALSE(error.is_scalar());
  // 1 - 4 / 4.5 and 1 - 10 / 8.
  R2Score mean({.num_outputs = 2}),
      weighted({.num_outputs = 2, .multioutput = "variance_weighted"});
  mean.update(found, wanted);
  weighted.update(found, wanted);
  EXPECT_NEAR(read(mean), ((1 - 4 / 4.5) + (1 - 10.0 / 8)) / 2, 1e-12);
  EXPECT_NEAR(read(weighted), ((4.5 - 4) + (8 - 10)) / 12.5, 1e-12);
}

TEST(Regression, AFarMeanLeavesTheVarianceExact) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({500}, at::kDouble), y = x + torch::randn({500}, at::kDouble);
  PearsonCorrCoef near, far;
  R2Score near_r2, far_r2;
  for (int64_t i = 0; i < 500; i += 20) {
    near.update(x.narrow(0, i, 20), y.narrow(0, i, 20));
    far.update(x.narrow(0, i, 20) + 1e6, y.narrow(0, i, 20) + 1e6);
    near_r2.update(x.narrow(0, i, 20), y.narrow(0, i, 20));
    far_r2.update(x.narrow(0, i, 20) + 1e6, y.narrow(0, i, 20) + 1e6);
  }
  EXPECT_NEAR(read(far), read(near), 1e-9);
  EXPECT_NEAR(read(far_r2), read(near_r2), 1e-9);
}

TEST(Regression, WhatDoesNotVary) {
  const at::Tensor constant = at::full({7}, 0.1), varies = at::arange(7, at::kFloat);
  PearsonCorrCoef pearson;
  SpearmanCorrCoef spearman;
  R2Score r2, right;
  pearson.update(constant, varies);
  spearman.update(constant, varies);
  r2.update(varies, constant);
  right.update(constant, constant);
  EXPECT_TRUE(std::isnan(read(pearson)));
  EXPECT_EQ(read(spearman), 0);
  EXPECT_EQ(read(r2), 0);
  EXPECT_EQ(read(right), 1);
}

TEST(Regression, TooFewSamplesAreNaN) {
  R2Score r2;
  r2.update(at::tensor({1.0}), at::tensor({2.0}));
  EXPECT_TRUE(std::isnan(read(r2)));
  MeanSquaredError error;
  error.update(at::empty({0}), at::empty({0}));
  EXPECT_TRUE(std::isnan(read(error)));
  EXPECT_TRUE(std::isnan(read(SpearmanCorrCoef())));
}

TEST(Regression, ResetForgetsAndCopiesAreValues) {
  MeanSquaredError error;
  error.update(at::tensor({1.0}), at::tensor({3.0}));
  MeanSquaredError copy = error;
  copy.update(at::tensor({1.0}), at::tensor({1.0}));
  EXPECT_EQ(read(error), 4);
  EXPECT_EQ(read(copy), 2);
  copy.reset();
  EXPECT_TRUE(std::isnan(read(copy)));
}

TEST(Regression, WrongOptionsAndInputAreNamed) {
  EXPECT_THAT(error_of([] { MeanAbsoluteError({.num_outputs = 0}); }),
              HasSubstr("observe.metric.options: MeanAbsoluteError got num_outputs = 0"));
  EXPECT_THAT(error_of([] { MeanAbsoluteError({.squared = false}); }),
              HasSubstr("squared = false, wanted true"));
  EXPECT_THAT(error_of([] { R2Score({.adjusted = -1}); }), HasSubstr("adjusted = -1"));
  EXPECT_THAT(error_of([] { PearsonCorrCoef({.adjusted = 1}); }), HasSubstr("only R2Score"));
  EXPECT_THAT(error_of([] { R2Score({.multioutput = "sum"}); }), HasSubstr("multioutput = 'sum'"));
  EXPECT_THAT(error_of([] { PearsonCorrCoef({.multioutput = "raw_values"}); }),
              HasSubstr("only R2Score"));
  PearsonCorrCoef pearson;
  EXPECT_THAT(error_of([&] { pearson.update(at::zeros({2}), at::zeros({3})); }),
              HasSubstr("observe.metric.shape: got [2] and [3]"));
  EXPECT_THAT(error_of([&] { pearson.update(at::zeros({2, 2}), at::zeros({2, 2})); }),
              HasSubstr("wanted both [N] (num_outputs = 1)"));
  PearsonCorrCoef three({.num_outputs = 3});
  EXPECT_THAT(error_of([&] { three.update(at::zeros({2, 2}), at::zeros({2, 2})); }),
              HasSubstr("wanted both [N, num_outputs] (num_outputs = 3)"));
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_THAT(error_of([&] { pearson.update(complex, complex); }),
              HasSubstr("observe.metric.dtype: got numbers of dtype ComplexFloat"));
}

}  // namespace
}  // namespace levin::metrics::regression_test
