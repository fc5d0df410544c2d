#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "levin/observe/metric.h"
#include "tests/support/error_of.h"

namespace levin::metrics::curve_test {
namespace {

using test::error_of;
using ::testing::HasSubstr;

double read(const Metric& metric) { return metric.compute().item<double>(); }

at::Tensor ints(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// Scores 0.9+ 0.8- 0.7+ 0.7- 0.1-: of the 6 pairs of a positive and a negative 4 are in order, and one is a tie.
const std::vector<double> kScores = {0.7, 0.9, 0.1, 0.7, 0.8};
const std::vector<int64_t> kLabels = {0, 1, 0, 1, 0};

template <class Kind>
Kind of_scores(const CurveOptions& options) {
  Kind metric(options);
  const at::Tensor scores = at::tensor(kScores), labels = ints(kLabels);
  metric.update(scores.narrow(0, 0, 2), labels.narrow(0, 0, 2));
  metric.update(scores.narrow(0, 2, 3), labels.narrow(0, 2, 3));
  return metric;
}

TEST(AUROC, IsTheShareOfPairsInOrder) {
  EXPECT_NEAR(read(of_scores<AUROC>({.task = "binary"})), 4.5 / 6, 1e-12);
}

/// Thresholds 1, 0.5, 0: rates (0, 0), (2/3, 1), (1, 1).
TEST(AUROC, BinnedCountsAtThresholds) {
  EXPECT_NEAR(read(of_scores<AUROC>({.task = "binary", .thresholds = 3})), 1.0 / 3 + 1.0 / 3,
              1e-12);
}

/// The curve (0, 0), (0, 1/2), (1/3, 1/2), ... has the area 1/2 * 0.2 up to 0.2, which McClish corrects.
TEST(AUROC, UpToAFalsePositiveRate) {
  EXPECT_NEAR(read(of_scores<AUROC>({.task = "binary", .max_fpr = 0.2})),
              0.5 * (1 + (0.1 - 0.02) / (0.2 - 0.02)), 1e-12);
  EXPECT_NEAR(read(of_scores<AUROC>({.task = "binary", .max_fpr = 1})), 4.5 / 6, 1e-12);
}

/// Recalls 1/2 and 1 have the precisions 1 and 2/4.
TEST(AveragePrecision, IsTheMeanPrecisionOverRecalls) {
  EXPECT_NEAR(read(of_scores<AveragePrecision>({.task = "binary"})), (1 + 2.0 / 4) / 2, 1e-12);
  EXPECT_NEAR(read(of_scores<AveragePrecision>({.task = "binary", .thresholds = 3})), 2.0 / 4,
              1e-12);
}

TEST(Curve, OneClassAlone) {
  for (const int64_t label : {0, 1}) {
    AUROC roc({.task = "binary"});
    AveragePrecision precision({.task = "binary"});
    roc.update(at::tensor({0.2, 0.6}), ints({label, label}));
    precision.update(at::tensor({0.2, 0.6}), ints({label, label}));
    EXPECT_EQ(read(roc), 0);
    EXPECT_EQ(read(precision), static_cast<double>(label));
  }
}

TEST(Curve, AMulticlassAverageLeavesOutClassesWhoseValueIsNaN) {
  const at::Tensor scores = at::tensor({0.6, 0.3, 0.1, 0.2, 0.7, 0.1}).view({2, 3});
  AveragePrecision mean({.num_classes = 3}), each({.num_classes = 3, .average = "none"});
  mean.update(scores, ints({0, 1}));
  each.update(scores, ints({0, 1}));
  EXPECT_EQ(read(mean), 1);
  EXPECT_TRUE(std::isnan(each.compute()[2].item<double>()));
}

TEST(Curve, RanksGiveTheCurveOfAllSamples) {
  torch::manual_seed(3);
  const at::Tensor scores = torch::rand({60}), labels = torch::randint(0, 2, {60}, at::kLong);
  for (const std::optional<int64_t> thresholds : {std::optional<int64_t>(), std::optional(20L)}) {
    const CurveOptions options{.task = "binary", .thresholds = thresholds};
    AUROC whole(options), first(options), second(options), idle(options);
    whole.update(scores, labels);
    first.update(scores.narrow(0, 0, 13), labels.narrow(0, 0, 13));
    second.update(scores.narrow(0, 13, 47), labels.narrow(0, 13, 47));
    first.merge(idle.state_dict());
    idle.merge(second.state_dict());
    idle.merge(first.state_dict());
    EXPECT_NEAR(read(idle), read(whole), 1e-14);
    whole.reset();
    EXPECT_TRUE(std::isnan(read(whole)));
  }
}

TEST(Curve, NothingCountedIsNaN) {
  AUROC roc({.task = "binary", .ignore_index = -1});
  roc.update(at::tensor({0.2, 0.6}), ints({-1, -1}));
  EXPECT_TRUE(std::isnan(read(roc)));
}

TEST(Curve, WrongOptionsAreNamed) {
  const auto said = [](CurveOptions options) { return error_of([&] { AUROC roc(options); }); };
  EXPECT_THAT(said({}), HasSubstr("observe.metric.options: AUROC got num_classes = 0"));
  EXPECT_THAT(said({.num_classes = 3, .average = "micro"}),
              HasSubstr("average = 'micro', wanted macro, weighted or none"));
  EXPECT_THAT(said({.task = "binary", .average = "none"}), HasSubstr("average = 'none'"));
  EXPECT_THAT(said({.task = "binary", .thresholds = 1}), HasSubstr("thresholds = 1, wanted 2"));
  EXPECT_THAT(said({.num_classes = 3, .max_fpr = 0.5}), HasSubstr("only AUROC of a binary task"));
  EXPECT_THAT(said({.task = "binary", .max_fpr = 0}), HasSubstr("a number above 0"));
  EXPECT_THAT(error_of([] { AveragePrecision({.task = "binary", .max_fpr = 0.5}); }),
              HasSubstr("AveragePrecision got max_fpr = 0.5"));
}

TEST(Curve, WrongInputIsNamed) {
  AUROC binary({.task = "binary"}), classes({.num_classes = 3});
  EXPECT_THAT(error_of([&] { binary.update(ints({0, 1}), ints({0, 1})); }),
              HasSubstr("observe.metric.dtype: got scores of dtype Long, wanted real scores"));
  EXPECT_THAT(
      error_of([&] { classes.update(at::zeros({2}), ints({0, 1})); }),
      HasSubstr("observe.metric.shape: got scores [2] and labels [2], wanted scores [N, C"));
  EXPECT_THAT(error_of([&] { classes.update(at::zeros({2, 3}), ints({0, 5})); }),
              HasSubstr("observe.metric.label: got a label = 5 at index [1]"));
  binary.load_state_dict(State().set("rows", at::tensor({0.5, -2.0}).view({1, 2})));
  EXPECT_THAT(error_of([&] { binary.compute(); }), HasSubstr("got 1 labels or predicted"));
}

}  // namespace
}  // namespace levin::metrics::curve_test
