#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "levin/observe/metric.h"
#include "tests/support/error_of.h"

namespace levin::metrics::stat_scores_test {
namespace {

using test::error_of;
using ::testing::HasSubstr;

at::Tensor ints(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

std::vector<double> all_of(const Metric& metric) {
  const at::Tensor value = metric.compute().flatten().contiguous();
  return {value.const_data_ptr<double>(), value.const_data_ptr<double>() + value.numel()};
}

/// The metric of found classes [0, 1, 1, 2, 2, 0, 1] with labels [0, 1, 2, 2, 2, 1, 1]:
/// class 0: tp 1, fp 1, fn 0, tn 5; 1: tp 2, fp 1, fn 1, tn 3; 2: tp 2, fp 0, fn 1, tn 4; 3: tn 7.
template <class Kind>
std::vector<double> of_classes(const std::string& average) {
  Kind metric({.num_classes = 4, .average = average});
  metric.update(ints({0, 1, 1, 2}), ints({0, 1, 2, 2}));
  metric.update(ints({2, 0, 1}), ints({2, 1, 1}));
  return all_of(metric);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

TEST(Precision, ByHand) {
  expect_near(of_classes<Precision>("none"), {1.0 / 2, 2.0 / 3, 1, 0});
  expect_near(of_classes<Precision>("micro"), {5.0 / 7});
  expect_near(of_classes<Precision>("macro"), {(1.0 / 2 + 2.0 / 3 + 1) / 3});  // class 3 is absent
  expect_near(of_classes<Precision>("weighted"), {(1 * 0.5 + 3 * 2.0 / 3 + 3 * 1) / 7});
}

TEST(Recall, ByHand) {
  expect_near(of_classes<Recall>("none"), {1, 2.0 / 3, 2.0 / 3, 0});
  expect_near(of_classes<Recall>("macro"), {(1 + 2.0 / 3 + 2.0 / 3) / 3});
}

TEST(Specificity, ByHand) {
  expect_near(of_classes<Specificity>("none"), {5.0 / 6, 3.0 / 4, 1, 1});
  expect_near(of_classes<Specificity>("micro"), {19.0 / 21});
}

TEST(F1Score, ByHand) {
  expect_near(of_classes<F1Score>("none"), {2.0 / 3, 2.0 / 3, 4.0 / 5, 0});
  expect_near(of_classes<F1Score>("macro"), {(2.0 / 3 + 2.0 / 3 + 4.0 / 5) / 3});
}

TEST(FBetaScore, WeighsRecall) {
  FBetaScore metric(2, {.num_classes = 4, .average = "none"});
  metric.update(ints({0, 1, 1, 2, 2, 0, 1}), ints({0, 1, 2, 2, 2, 1, 1}));
  // 5 tp / (5 tp + 4 fn + fp)
  expect_near(all_of(metric), {5.0 / 6, 10.0 / 15, 10.0 / 14, 0});
}

TEST(AccuracyMetric, OfOtherTasksAndAverages) {
  expect_near(of_classes<Accuracy>("none"), {1, 2.0 / 3, 2.0 / 3, 0});
  expect_near(of_classes<Accuracy>("micro"), {5.0 / 7});
  Accuracy binary({.task = "binary", .threshold = 0.3});
  binary.update(at::tensor({0.1, 0.4, 0.3, 0.9}), ints({0, 1, 1, 0}));
  expect_near(all_of(binary), {2.0 / 4});
  Accuracy multilabel({.task = "multilabel", .num_labels = 2, .average = "none"});
  multilabel.update(at::tensor({0.1, 0.9, 0.8, 0.2, 0.7, 0.7}).view({3, 2}),
                    ints({0, 1, 1, 1, 0, 1}).view({3, 2}));
  expect_near(all_of(multilabel), {2.0 / 3, 2.0 / 3});
  EXPECT_NEAR(accuracy(at::tensor({-3.0, 3.0}), ints({0, 0}), {.task = "binary"}).item<float>(),
              0.5, 1e-7);
}

TEST(StatScores, TopKCountsTheLabelIfItIsAmongTheHighest) {
  Recall metric({.num_classes = 3, .average = "none", .top_k = 2});
  const at::Tensor scores = at::tensor({3.0, 2.0, 1.0}).expand({3, 3});
  metric.update(scores, ints({0, 1, 2}));
  expect_near(all_of(metric), {1, 1, 0});
}

TEST(StatScores, ZeroDivisionIsTheValueOfNothing) {
  for (const double zero : {0.0, 1.0}) {
    Precision metric({.task = "binary", .zero_division = zero});
    metric.update(at::tensor({0.1, 0.2}), ints({1, 0}));
    expect_near(all_of(metric), {zero});
  }
}

TEST(StatScores, LogitsAreKnownByValuesOutsideZeroToOne) {
  Recall metric({.task = "binary"});
  metric.update(at::tensor({0.4, 2.0}), ints({1, 1}));  // logits: both above 0.5
  metric.update(at::tensor({0.4, 0.6}), ints({1, 1}));  // probabilities: one
  expect_near(all_of(metric), {3.0 / 4});
}

TEST(StatScores, NothingIsNaNAndResetForgets) {
  Precision metric({.num_classes = 2});
  EXPECT_TRUE(std::isnan(all_of(metric)[0]));
  metric.update(at::zeros({0, 2}), ints({}));
  expect_near(all_of(metric), {0});  // as torchmetrics has it of no samples
  metric.update(ints({1}), ints({1}));
  metric.reset();
  EXPECT_TRUE(std::isnan(all_of(metric)[0]));
}

TEST(StatScores, CopiesAndStatesAreValues) {
  Precision metric({.num_classes = 2});
  metric.update(ints({1}), ints({1}));
  Precision copy = metric;
  const State state = metric.state_dict();
  copy.update(ints({1}), ints({0}));
  expect_near(all_of(metric), {1});
  expect_near(all_of(copy), {0.5});
  copy.load_state_dict(state);
  expect_near(all_of(copy), {1});
}

TEST(ConfusionMatrix, HasLabelsInRows) {
  ConfusionMatrix counts({.num_classes = 3, .ignore_index = -1});
  counts.update(ints({0, 1, 1, 2}), ints({0, 1, 2, -1}));
  counts.update(ints({0, 0}), ints({1, 1}));
  expect_near(all_of(counts), {1, 0, 0, 2, 1, 0, 0, 1, 0});
  EXPECT_EQ(counts.compute().sizes(), at::IntArrayRef({3, 3}));
  ConfusionMatrix by_label({.num_classes = 3}, "true");
  by_label.update(ints({0, 1, 0, 0}), ints({0, 1, 1, 1}));
  expect_near(all_of(by_label), {1, 0, 0, 2.0 / 3, 1.0 / 3, 0, 0, 0, 0});
}

TEST(StatScores, WrongOptionsAreNamed) {
  struct Case {
    ClassificationOptions options;
    std::string expected;
  };
  for (const Case& wrong : std::vector<Case>{
           {{.task = "regression"}, "Precision got task = 'regression', wanted binary, multiclass"},
           {{}, "Precision got num_classes = 0, wanted 2 or more for a multiclass task"},
           {{.task = "binary", .num_classes = 2}, "num_classes = 2, wanted 0"},
           {{.task = "multilabel", .num_labels = 1}, "num_labels = 1, wanted 2 or more"},
           {{.num_classes = 3, .num_labels = 3}, "num_labels = 3, wanted 0"},
           {{.num_classes = 3, .average = "samples"}, "average = 'samples', wanted micro, macro"},
           {{.task = "binary", .average = "macro"}, "average = 'macro', wanted no other"},
           {{.task = "binary", .threshold = 1.5}, "threshold = 1.5"},
           {{.num_classes = 3, .threshold = 0.4}, "threshold = 0.4"},
           {{.num_classes = 3, .top_k = 4}, "top_k = 4, wanted 1 to num_classes"},
           {{.num_classes = 3, .top_k = 0}, "top_k = 0"},
           {{.task = "binary", .top_k = 2}, "top_k = 2, wanted 1"},
           {{.task = "binary", .zero_division = 2}, "zero_division = 2"}}) {
    const std::string said = error_of([&] { Precision metric(wrong.options); });
    EXPECT_THAT(said, HasSubstr("observe.metric.options: "));
    EXPECT_THAT(said, HasSubstr(wrong.expected));
  }
  EXPECT_THAT(error_of([] { Accuracy({.task = "binary", .zero_division = 1}); }),
              HasSubstr("Accuracy got zero_division = 1"));
  EXPECT_THAT(error_of([] { Accuracy({.average = "macro"}); }), HasSubstr("num_classes = 0"));
  EXPECT_THAT(error_of([] { Accuracy({.num_labels = 2}); }), HasSubstr("observe.metric.options"));
  EXPECT_THAT(error_of([] { FBetaScore(0, {.task = "binary"}); }), HasSubstr("beta = 0"));
  EXPECT_THAT(error_of([] { ConfusionMatrix({.num_classes = 2}, "rows"); }),
              HasSubstr("normalize = 'rows'"));
  EXPECT_THAT(error_of([] { ConfusionMatrix({.num_classes = 2, .average = "macro"}); }),
              HasSubstr("average = 'macro', wanted no average"));
  EXPECT_THAT(error_of([] { ConfusionMatrix({.num_classes = 2, .top_k = 2}); }),
              HasSubstr("top_k = 2"));
  EXPECT_THAT(error_of([] { ConfusionMatrix({.task = "binary", .zero_division = 1}); }),
              HasSubstr("zero_division = 1"));
}

TEST(StatScores, WrongInputIsNamed) {
  Precision classes({.num_classes = 3}), binary({.task = "binary"}), first({.num_classes = 3});
  Precision labels({.task = "multilabel", .num_labels = 2});
  Precision two({.num_classes = 3, .top_k = 2});
  struct Case {
    std::function<void()> run;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[&] { classes.update(at::zeros({2, 3}), ints({0, 3})); },
       "observe.metric.label: got a label = 3 at index [1], wanted 0 to 2"},
      {[&] { classes.update(ints({0, 1, -1, 0}).view({2, 2}), ints({0, 1, 2, 0}).view({2, 2})); },
       "observe.metric.label: got a predicted class = -1 at index [1, 0], wanted 0 to 2"},
      {[&] { binary.update(at::zeros({2}), ints({0, 2})); },
       "observe.metric.label: got a label = 2 at index [1], wanted 0 to 1"},
      {[&] { binary.update(ints({0, 2}), ints({0, 1})); }, "a predicted class = 2 at index [1]"},
      {[&] { classes.update(at::zeros({2, 4}), ints({0, 1})); },
       "observe.metric.shape: got scores [2, 4], wanted [N, 3, ...] (num_classes = 3)"},
      {[&] { classes.update(at::zeros({2, 3}), ints({0, 1, 2})); }, "observe.metric.shape"},
      {[&] { binary.update(at::zeros({2}), ints({0, 1, 1})); },
       "observe.metric.shape: got scores [2] and labels [3], wanted the same shape"},
      {[&] { labels.update(at::zeros({2, 3}), at::zeros({2, 3}, at::kLong)); },
       "observe.metric.shape: got scores [2, 3] and labels [2, 3], wanted both [N, 2, ...]"},
      {[&] { binary.update(at::zeros({2}), at::zeros({2})); },
       "observe.metric.dtype: got labels of dtype Float"},
      {[&] { classes.update(at::zeros({2}), ints({0, 1})); }, "observe.metric.dtype"},
      {[&] { two.update(ints({0, 1}), ints({0, 1})); }, "observe.metric.top_k"}};
  for (const Case& wrong : cases) EXPECT_THAT(error_of(wrong.run), HasSubstr(wrong.expected));
  // A state of another device, whose update could not wait to look.
  first.load_state_dict(State().set("sums", ints({1, 0, 0, 0, 2}).unsqueeze(1).expand({5, 3})));
  EXPECT_THAT(error_of([&] { first.compute(); }),
              HasSubstr("observe.metric.label: got 2 labels or predicted classes"));
}

}  // namespace
}  // namespace levin::metrics::stat_scores_test
