#include "levin/observe/metrics/counted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/error_of.h"

namespace levin::metrics {
namespace {

using test::error_of;
using ::testing::HasSubstr;

double read(const Metric& metric) { return metric.compute().item<double>(); }

at::Tensor ints(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// seqeval.metrics.f1_score of
///   wanted  B-PER I-PER O     B-LOC | B-LOC I-LOC I-LOC
///   found   B-PER I-PER O     B-PER | B-LOC I-LOC O     and an I that nothing stands before
TEST(EntityF1, CountsEntitiesWhoseEndsAndTypeAreRight) {
  EntityF1 f1({"O", "B-PER", "I-PER", "B-LOC", "I-LOC"});
  const at::Tensor wanted = at::stack({ints({1, 2, 0, 3, -100}), ints({3, 4, 4, 0, 2})});
  const at::Tensor found = at::stack({ints({1, 2, 0, 1, 1}), ints({3, 4, 0, 0, 2})});
  f1.update(found, wanted);
  EXPECT_NEAR(read(f1), 2.0 * 2 / (4 + 4), 1e-12);
  EXPECT_THAT(error_of([&] { f1.update(ints({7}).view({1, 1}), ints({0}).view({1, 1})); }),
              HasSubstr("observe.metric.shape"));
}

/// A new type ends an entity and begins another; B begins one beside another of its type.
TEST(EntityF1, EntitiesEndWhereTheTypeChanges) {
  EntityF1 f1({"O", "B-A", "I-A", "B-B", "I-B"});
  f1.update(ints({1, 2, 4, 1, 1}).view({1, 5}), ints({1, 2, 4, 1, 2}).view({1, 5}));
  // wanted: A[0,2) B[2,3) A[3,5); found: A[0,2) B[2,3) A[3,4) A[4,5)
  EXPECT_NEAR(read(f1), 2.0 * 2 / (4 + 3), 1e-12);
}

TEST(LossPerplexity, IsOfAllTokensAndNotAMeanOfMeans) {
  LossPerplexity perplexity;
  perplexity.update(at::tensor(2.0), at::tensor(10));
  perplexity.update(at::tensor(4.0), at::tensor(30));
  EXPECT_NEAR(read(perplexity), std::exp((2.0 * 10 + 4.0 * 30) / 40), 1e-9);
  WeightedMean mean;
  mean.update(at::tensor(2.0), at::tensor(10));
  mean.update(at::tensor(4.0), at::tensor(30));
  EXPECT_NEAR(read(mean), 3.5, 1e-12);
}

/// Logits log(p) of p = [1/2, 1/4, 1/4]: the labels 0, 1, 0 have the mean -log p of (1 + 2 + 1) log(2) / 3.
TEST(Perplexity, IsTheInverseGeometricMeanOfProbabilities) {
  const at::Tensor logits =
      at::tensor({0.5, 0.25, 0.25}).log().reshape({1, 1, 3}).expand({1, 4, 3});
  Perplexity perplexity(-100);
  perplexity.update(logits, ints({0, 1, -100, 0}).view({1, 4}));
  EXPECT_NEAR(read(perplexity), std::exp2(4.0 / 3), 1e-6);
  perplexity.update(logits, ints({1, 1, 1, 1}).view({1, 4}));
  EXPECT_NEAR(read(perplexity), std::exp2(12.0 / 7), 1e-6);
  EXPECT_TRUE(std::isnan(read(Perplexity())));
}

TEST(Perplexity, WrongInputIsNamed) {
  Perplexity perplexity;
  EXPECT_THAT(error_of([&] { perplexity.update(at::zeros({2, 3}), ints({0, 1})); }),
              HasSubstr("observe.metric.shape: got logits [2, 3] and labels [2]"));
  EXPECT_THAT(error_of([&] { perplexity.update(at::zeros({1, 2, 3}), ints({0, 3}).view({1, 2})); }),
              HasSubstr("observe.metric.label: got a label = 3 at index [1], wanted 0 to 2"));
  EXPECT_THAT(
      error_of([&] { perplexity.update(ints({1, 2}).view({1, 1, 2}), ints({0}).view({1, 1})); }),
      HasSubstr("observe.metric.dtype: got logits of dtype Long"));
}

TEST(Counted, AStateOfAnotherKindIsRefused) {
  State state;
  state.set("correct", 3.0);
  EXPECT_THAT(error_of([&] { Perplexity().load_state_dict(state); }),
              HasSubstr("observe.metric.state: the state of a metric has 'correct', wanted sums or "
                        "rows"));
}

TEST(Counted, OptionsAreChecked) {
  EXPECT_THAT(error_of([] { EntityF1({}); }), HasSubstr("observe.metric.options"));
}

}  // namespace
}  // namespace levin::metrics
