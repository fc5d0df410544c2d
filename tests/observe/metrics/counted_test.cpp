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

/// sklearn.metrics.f1_score(wanted, found, average = "macro") with these numbers.
TEST(F1, OfClassesThatOccurAsScikitLearnHasIt) {
  const at::Tensor found = ints({0, 1, 1, 2, 2, 0, 1}), wanted = ints({0, 1, 2, 2, 2, 1, 1});
  F1 macro({.num_classes = 5});
  macro.update(found, wanted);
  EXPECT_NEAR(read(macro), (2.0 / 3 + 2.0 / 3 + 4.0 / 5) / 3, 1e-12);
  F1 binary({.num_classes = 2, .average = "binary"});
  binary.update(ints({0, 1, 1, 0, 1}), ints({1, 1, 0, 0, -100}));
  EXPECT_NEAR(read(binary), 2.0 * 1 / (2 + 2), 1e-12);
}

TEST(F1, TakesScoresOfAnyShape) {
  F1 f1({.num_classes = 3});
  const at::Tensor classes = ints({0, 2, 1, 1}).view({2, 2});
  f1.update(at::one_hot(classes, 3).to(at::kFloat), classes);
  EXPECT_EQ(read(f1), 1);
}

TEST(F1, MergedOverRanksIsThatOfAll) {
  const at::Tensor found = at::randint(4, {90}, at::kLong),
                   wanted = at::randint(4, {90}, at::kLong);
  F1 all({.num_classes = 4}), first({.num_classes = 4}), second({.num_classes = 4});
  all.update(found, wanted);
  first.update(found.narrow(0, 0, 31), wanted.narrow(0, 0, 31));
  second.update(found.narrow(0, 31, 59), wanted.narrow(0, 31, 59));
  first.merge(second.state_dict());
  EXPECT_NEAR(read(first), read(all), 1e-14);
  F1 loaded({.num_classes = 4});
  loaded.load_state_dict(first.state_dict());
  EXPECT_EQ(read(loaded), read(first));
  first.reset();
  EXPECT_TRUE(std::isnan(read(first)));
}

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

TEST(Perplexity, IsOfAllTokensAndNotAMeanOfMeans) {
  Perplexity perplexity;
  perplexity.update(at::tensor(2.0), at::tensor(10));
  perplexity.update(at::tensor(4.0), at::tensor(30));
  EXPECT_NEAR(read(perplexity), std::exp((2.0 * 10 + 4.0 * 30) / 40), 1e-9);
  WeightedMean mean;
  mean.update(at::tensor(2.0), at::tensor(10));
  mean.update(at::tensor(4.0), at::tensor(30));
  EXPECT_NEAR(read(mean), 3.5, 1e-12);
}

TEST(Counted, OptionsAndShapesAreChecked) {
  EXPECT_THAT(error_of([] { F1({.average = "micro"}); }), HasSubstr("observe.metric.options"));
  EXPECT_THAT(error_of([] { F1({.num_classes = 1, .average = "binary"}); }),
              HasSubstr("observe.metric.options"));
  EXPECT_THAT(error_of([] { EntityF1({}); }), HasSubstr("observe.metric.options"));
  EXPECT_THAT(error_of([] { F1({}).update(at::zeros({3, 2}), ints({1, 0})); }),
              HasSubstr("observe.metric.shape"));
}

}  // namespace
}  // namespace levin::metrics
