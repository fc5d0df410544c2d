#include "levin/observe/metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "levin/base/error.h"
#include "tests/support/error_of.h"

namespace {

using levin::metrics::Accuracy;
using levin::metrics::accuracy;
using levin::metrics::AccuracyOptions;
using levin::metrics::Max;
using levin::metrics::Mean;
using levin::metrics::Min;
using levin::metrics::Sum;
using levin::test::error_of;
using ::testing::HasSubstr;

double read(const levin::Metric& metric) { return metric.compute().item<double>(); }

at::Tensor labels_of(std::vector<int64_t> labels) { return at::tensor(labels, at::kLong); }

TEST(AccuracyFunction, IsTheShareOfRightClasses) {
  const auto scores = at::tensor({0.1, 0.9, 0.8, 0.2, 0.3, 0.7, 0.6, 0.4}).reshape({4, 2});
  const at::Tensor value = accuracy(scores, labels_of({1, 0, 0, 0}));
  EXPECT_EQ(value.item<float>(), 0.75f);
  EXPECT_EQ(value.dim(), 0);
  EXPECT_EQ(value.scalar_type(), at::kFloat);
  EXPECT_FALSE(accuracy(scores.requires_grad_(), labels_of({1, 0, 0, 0})).requires_grad());
}

TEST(AccuracyFunction, TakesClassesAndExtraDims) {
  EXPECT_EQ(accuracy(labels_of({1, 2, 3, 4}), labels_of({1, 2, 0, 4})).item<float>(), 0.75f);
  // [N, C, T] = [1, 3, 2]
  const auto scores = at::tensor({0.0, 1.0, 5.0, 0.0, 1.0, 2.0}).reshape({1, 3, 2});
  EXPECT_EQ(accuracy(scores, labels_of({1, 0}).reshape({1, 2})).item<float>(), 0.5f);
}

TEST(AccuracyFunction, TopKTakesTheLabelAmongTheHighest) {
  const auto scores = at::tensor({3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 3.0, 2.0, 1.0}).reshape({3, 3});
  const auto labels = labels_of({0, 1, 2});
  EXPECT_FLOAT_EQ(accuracy(scores, labels, {.top_k = 1}).item<float>(), 1.0f / 3);
  EXPECT_FLOAT_EQ(accuracy(scores, labels, {.top_k = 2}).item<float>(), 2.0f / 3);
  EXPECT_EQ(accuracy(scores, labels, {.top_k = 3}).item<float>(), 1.0f);
}

TEST(AccuracyFunction, IgnoredLabelsDoNotCount) {
  const auto scores =
      at::tensor({3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 2.0, 3.0, 1.0, 3.0, 2.0, 1.0}).reshape({4, 3});
  const auto labels = labels_of({0, -100, 0, -100});
  for (const int64_t top_k : {1, 2}) {
    const AccuracyOptions options{.top_k = top_k, .ignore_index = -100};
    EXPECT_EQ(accuracy(scores, labels, options).item<float>(), top_k == 1 ? 0.5f : 1.0f);
  }
}

TEST(AccuracyFunction, OfNothingIsNaN) {
  EXPECT_TRUE(std::isnan(accuracy(at::empty({0, 3}), at::empty({0}, at::kLong)).item<float>()));
  EXPECT_TRUE(
      std::isnan(accuracy(at::eye(2), labels_of({7, 7}), {.ignore_index = 7}).item<float>()));
}

TEST(AccuracyFunction, WrongInputIsNamed) {
  const auto labels = labels_of({0, 1, 2});
  struct Case {
    std::function<void()> run;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[&] { accuracy(at::zeros({4, 3}), labels); },
       "observe.metric.shape: got scores [4, 3] and labels [3]"},
      {[&] { accuracy(labels_of({1, 2}), labels); },
       "observe.metric.shape: got scores [2] and labels [3]"},
      {[&] { accuracy(at::zeros({3, 2, 5}), at::zeros({3, 4}, at::kLong)); },
       "observe.metric.shape: got scores [3, 2, 5] and labels [3, 4]"},
      {[&] { accuracy(at::zeros({3}), labels); },
       "observe.metric.dtype: got scores of dtype Float"},
      {[&] { accuracy(at::zeros({3, 3}), at::zeros({3})); },
       "observe.metric.dtype: got labels of dtype Float"},
      {[&] { accuracy(at::zeros({3, 3}), labels, {.top_k = 4}); },
       "observe.metric.top_k: got top_k 4 with scores [3, 3], wanted 1 to 3"},
      {[&] { accuracy(at::zeros({3, 3}), labels, {.top_k = 0}); }, "observe.metric.top_k"},
      {[&] { accuracy(labels, labels, {.top_k = 2}); }, "observe.metric.top_k"}};
  for (const Case& wrong : cases) EXPECT_THAT(error_of(wrong.run), HasSubstr(wrong.expected));
}

TEST(AccuracyMetric, EqualsTheWholeDataSetAcrossBatchesOfDifferentSize) {
  torch::manual_seed(1);
  const auto scores = torch::randn({103, 5});
  const auto labels = torch::randint(0, 5, {103}, at::kLong);
  Accuracy metric;
  for (int64_t start = 0, size = 1; start < 103; start += size, size += 7) {
    size = std::min<int64_t>(size, 103 - start);
    metric.update(scores.narrow(0, start, size), labels.narrow(0, start, size));
  }
  const double right = static_cast<double>((scores.argmax(1) == labels).sum().item<int64_t>());
  EXPECT_EQ(read(metric), right / 103);
}

TEST(AccuracyMetric, IsExactBeyondTheIntegersOfAFloat) {
  Accuracy metric;
  const int64_t half = 50'000'000;  // correct, wrong (false positives), wrong (false negatives)
  metric.load_state_dict(
      levin::State().set("sums", labels_of({half, half, 0, half, 0}).unsqueeze(1)));
  metric.update(labels_of({1}), labels_of({1}));
  EXPECT_EQ(read(metric), 50'000'001.0 / 100'000'001.0);
}

TEST(AccuracyMetric, LeavesOutIgnoredLabels) {
  Accuracy metric({.ignore_index = 9});
  metric.update(labels_of({1, 2, 3}), labels_of({1, 9, 9}));
  metric.update(labels_of({1, 2, 3}), labels_of({0, 9, 3}));
  EXPECT_EQ(read(metric), 2.0 / 3);
}

TEST(AccuracyMetric, BegunInInferenceModeGoesOnOutside) {
  Accuracy metric;
  {
    const c10::InferenceMode inference;
    metric.update(labels_of({1}), labels_of({1}));
  }
  metric.update(labels_of({1}), labels_of({2}));
  EXPECT_EQ(read(metric), 0.5);
}

TEST(AccuracyMetric, MergesInAnyGroupingAndWithARankThatSawNothing) {
  const auto part = [](std::vector<int64_t> guesses, std::vector<int64_t> labels) {
    Accuracy metric({.ignore_index = 9});
    metric.update(labels_of(std::move(guesses)), labels_of(std::move(labels)));
    return metric;
  };
  const auto merged = [](Accuracy a, const Accuracy& b) {
    a.merge(b.state_dict());
    return a;
  };
  const Accuracy a = part({1, 2}, {1, 9}), b = part({3, 4, 5}, {3, 4, 0}), c = part({7}, {6});
  const Accuracy nothing({.ignore_index = 9});
  EXPECT_EQ(read(merged(merged(a, b), c)), 3.0 / 5);
  EXPECT_EQ(read(merged(a, merged(b, c))), 3.0 / 5);
  EXPECT_EQ(read(merged(nothing, merged(merged(c, nothing), merged(b, a)))), 3.0 / 5);
}

TEST(AccuracyMetric, StateIsACopyAndResetForgets) {
  Accuracy metric;
  metric.update(labels_of({1}), labels_of({1}));
  const levin::State state = metric.state_dict();
  metric.update(labels_of({1}), labels_of({0}));
  Accuracy other;
  other.load_state_dict(state);
  EXPECT_EQ(read(other), 1.0);
  metric.reset();
  EXPECT_TRUE(std::isnan(read(metric)));
}

TEST(AccuracyMetric, CopiesAreValues) {
  Accuracy metric;
  metric.update(labels_of({1}), labels_of({1}));
  Accuracy copy = metric;
  copy.update(labels_of({1}), labels_of({0}));
  EXPECT_EQ(read(metric), 1.0);
  EXPECT_EQ(read(copy), 0.5);
}

TEST(MeanMetric, WeighsSamplesAndNotBatches) {
  Mean metric;
  metric.update(2.0, 3);
  metric.update(at::scalar_tensor(6.0), 1);
  metric.update(at::tensor({1.0, 3.0}), 2);
  EXPECT_EQ(read(metric), (6.0 + 6.0 + 8.0) / 8);
}

TEST(MeanMetric, IsExactForAHundredMillionFloats) {
  Mean metric;
  for (int i = 0; i < 100; ++i) metric.update(0.1f, 1e6);
  EXPECT_EQ(read(metric), static_cast<double>(0.1f));
}

TEST(MeanMetric, ImpossibleWeightsAndValuesAreErrors) {
  Mean metric;
  EXPECT_THAT(error_of([&] { metric.update(1.0, -1); }), HasSubstr("observe.metric.weight: got"));
  EXPECT_THAT(error_of([&] { metric.update(at::ones({2}), INFINITY); }),
              HasSubstr("observe.metric.weight"));
  EXPECT_THAT(error_of([&] { metric.update(at::ones({2}, at::kComplexFloat)); }),
              HasSubstr("observe.metric.dtype"));
}

template <class M>
double over(const std::vector<at::Tensor>& values) {
  M metric;
  for (const at::Tensor& value : values) metric.update(value);
  M merged;
  merged.merge(metric.state_dict());
  EXPECT_EQ(read(merged), read(metric));
  return read(metric);
}

TEST(ReducedMetrics, TakeTensorsOfAnyShape) {
  const std::vector<at::Tensor> values = {at::tensor({1.0, -2.5, 4.0}), at::scalar_tensor(0.5),
                                          at::empty({0}), at::full({2, 2}, 2)};
  EXPECT_EQ(over<Sum>(values), 11.0);
  EXPECT_EQ(over<Mean>(values), 11.0 / 8);
  EXPECT_EQ(over<Min>(values), -2.5);
  EXPECT_EQ(over<Max>(values), 4.0);
}

TEST(ReducedMetrics, OfNothing) {
  EXPECT_EQ(read(Sum()), 0.0);
  EXPECT_TRUE(std::isnan(read(Mean())));
  EXPECT_TRUE(std::isnan(read(Min())));
  EXPECT_TRUE(std::isnan(read(Max())));
}

}  // namespace
