#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/observe/logger.h"
#include "tests/observe/elsewhere.h"

namespace {

using levin::LoggedValues;
using levin::LogTarget;
using levin::Scalars;
using levin::State;
using levin::test::elsewhere;
using ::testing::ElementsAre;

// What one process holds of a run: the collected values and the module's metric.
struct Process {
  LoggedValues logged{true, true};
  std::shared_ptr<levin::metrics::Mean> metric = std::make_shared<levin::metrics::Mean>();
  // One of each kind of state: counts, kept scores, counts at thresholds, moments.
  std::shared_ptr<levin::metrics::F1Score> f1 = std::make_shared<levin::metrics::F1Score>(
      levin::metrics::ClassificationOptions{.num_classes = 3, .average = "macro"});
  std::shared_ptr<levin::metrics::AUROC> exact =
      std::make_shared<levin::metrics::AUROC>(levin::metrics::CurveOptions{.task = "binary"});
  std::shared_ptr<levin::metrics::AUROC> binned = std::make_shared<levin::metrics::AUROC>(
      levin::metrics::CurveOptions{.task = "binary", .thresholds = 10});
  std::shared_ptr<levin::metrics::PearsonCorrCoef> pearson =
      std::make_shared<levin::metrics::PearsonCorrCoef>();

  void step(int i) {
    logged.begin_step(i % 5 + 1);
    logged.log("train/loss.a", 1.0 / (i + 3));
    logged.log("device", elsewhere(1.0 / (i + 7)));
    logged.log("low", elsewhere(i * 37 % 11), {.on_step = false, .reduce = "min"});
    metric->update(1.0 / (i + 11), i + 1);
    logged.log("metric", metric, {.prog_bar = true});
    const at::Tensor numbers = at::tensor({i * 37 % 11, i * 17 % 13 + 1, i % 5 + 3});
    const at::Tensor scores = numbers / 13.0, classes = numbers % 3, labels = numbers % 2;
    f1->update(classes, at::tensor({0, i % 3, 2}));
    exact->update(scores, labels);
    binned->update(scores, labels);
    pearson->update(numbers, numbers.square() + i);
    logged.log("f1", f1);
    logged.log("exact", exact);
    logged.log("binned", binned);
    logged.log("pearson", pearson);
    if (i % 4 == 3) logged.log("now_and_then", 0.1 * i, {.reduce = "sum"});
  }
};

class ResumeAfter : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Steps, ResumeAfter, ::testing::Values(0, 1, 3, 4, 11, 19));

TEST_P(ResumeAfter, GivesTheSameValuesBitForBit) {
  Process whole, before, after;
  for (int i = 0; i < 20; ++i) {
    if (i == GetParam()) after.logged.load_state_dict(before.logged.state_dict());
    whole.step(i);
    (i < GetParam() ? before : after).step(i);
  }
  const Scalars expected = whole.logged.epoch_values(LogTarget::kCallbacks);
  EXPECT_EQ(after.logged.step_values(LogTarget::kCallbacks),
            whole.logged.step_values(LogTarget::kCallbacks));
  EXPECT_EQ(after.logged.epoch_values(LogTarget::kCallbacks), expected);
  EXPECT_EQ(expected.size(), 12u);
}

TEST(LoggedState, LoadingReplacesWhatWasGathered) {
  Process saved, other;
  saved.step(1);
  const State state = saved.logged.state_dict();
  const Scalars expected = saved.logged.epoch_values(LogTarget::kCallbacks);
  other.step(5);
  other.logged.load_state_dict(state);
  EXPECT_EQ(other.logged.epoch_values(LogTarget::kCallbacks), expected);
}

TEST(LoggedState, IsACopy) {
  Process run;
  run.step(0);
  const State state = run.logged.state_dict();
  const Scalars expected = run.logged.epoch_values(LogTarget::kCallbacks);
  run.step(1);
  run.logged.load_state_dict(state);
  EXPECT_EQ(run.logged.epoch_values(LogTarget::kCallbacks), expected);
}

TEST(LoggedState, OfAMetricNotYetSeenAgainIsKept) {
  Process first, second, third;
  first.step(0);
  second.logged.load_state_dict(first.logged.state_dict());
  third.logged.load_state_dict(second.logged.state_dict());
  third.step(1);
  first.step(1);
  EXPECT_EQ(third.logged.epoch_values(LogTarget::kCallbacks),
            first.logged.epoch_values(LogTarget::kCallbacks));
}

TEST(LoggedState, KeepsTheOrderOfNames) {
  Process run, resumed;
  run.step(3);
  resumed.logged.load_state_dict(run.logged.state_dict());
  const auto values = resumed.logged.epoch_values(LogTarget::kLogger);
  ASSERT_EQ(values.size(), 4u);  // without the metric, which was not logged again
  EXPECT_EQ(values[0].name, "train/loss.a_epoch");
  EXPECT_EQ(values[2].name, "low");
}

TEST(LoggedMerge, RanksInAnyGroupingGiveTheGlobalValue) {
  const auto rank = [](double value, int64_t size) {
    auto logged = std::make_unique<LoggedValues>(false, true);
    logged->begin_step(size);
    logged->log("mean", value);
    logged->log("max", elsewhere(value), {.reduce = "max"});
    return logged;
  };
  const auto a = rank(1, 10), b = rank(4, 30), c = rank(-2, 60);
  a->merge(b->state_dict());
  c->merge(a->state_dict());
  EXPECT_THAT(
      c->epoch_values(LogTarget::kCallbacks),
      ElementsAre(levin::Scalar{"mean", (10 + 120 - 120) / 100.0}, levin::Scalar{"max", 4}));
}

TEST(LoggedMerge, ARankWithoutBatchesLearnsTheNames) {
  LoggedValues idle(false, true), busy(false, true);
  busy.begin_step(3);
  busy.log("x", 2.0);
  idle.merge(busy.state_dict());
  EXPECT_THAT(idle.epoch_values(LogTarget::kCallbacks), ElementsAre(levin::Scalar{"x", 2}));
}

TEST(LoggedMerge, InTheOrderOfRanksGivesEveryRankTheSameBits) {
  std::vector<Process> ranks(3);
  std::vector<State> states;
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 4; ++i) ranks[r].step(5 * r + 4 + i);
    states.push_back(ranks[r].logged.state_dict());
  }
  for (Process& rank : ranks) {
    rank.logged.reset_epoch();
    for (const State& state : states) rank.logged.merge(state);
  }
  EXPECT_EQ(ranks[0].logged.epoch_values(LogTarget::kCallbacks),
            ranks[1].logged.epoch_values(LogTarget::kCallbacks));
  EXPECT_EQ(ranks[0].logged.epoch_values(LogTarget::kCallbacks),
            ranks[2].logged.epoch_values(LogTarget::kCallbacks));
}

TEST(LoggedMerge, RanksThatLogDifferentlyAreRefused) {
  LoggedValues a(false, true), b(false, true);
  a.log("x", 1.0);
  b.log("x", 1.0, {.reduce = "sum"});
  try {
    a.merge(b.state_dict());
    ADD_FAILURE();
  } catch (const levin::Error& error) {
    EXPECT_EQ(error.id(), "observe.log.options");
  }
}

}  // namespace
