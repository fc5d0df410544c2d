#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <new>

#include "levin/base/error.h"
#include "levin/observe/logger.h"
#include "tests/observe/elsewhere.h"
#include "tests/support/error_of.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

// Counted, so that a test can see that logging does without.
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using levin::LoggedValues;
using levin::LogOptions;
using levin::LogTarget;
using levin::Scalars;
using levin::test::elsewhere;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

levin::Scalar scalar(std::string name, double value) { return {std::move(name), value}; }

TEST(Logged, DefaultsAreTheStages) {
  LoggedValues training(true, false), validation(false, true);
  for (LoggedValues* logged : {&training, &validation}) {
    logged->begin_step(4);
    logged->log("loss", 0.5);
  }
  EXPECT_THAT(training.step_values(LogTarget::kCallbacks), ElementsAre(scalar("loss", 0.5)));
  EXPECT_THAT(training.epoch_values(LogTarget::kCallbacks), IsEmpty());
  EXPECT_THAT(validation.step_values(LogTarget::kCallbacks), IsEmpty());
  EXPECT_THAT(validation.epoch_values(LogTarget::kCallbacks), ElementsAre(scalar("loss", 0.5)));
}

TEST(Logged, OnStepAndOnEpochGetTwoNamesAndCallbacksSeeThePlainOneToo) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("x", 2.0, {.on_epoch = true});
  EXPECT_THAT(logged.step_values(LogTarget::kLogger), ElementsAre(scalar("x_step", 2)));
  EXPECT_THAT(logged.epoch_values(LogTarget::kLogger), ElementsAre(scalar("x_epoch", 2)));
  EXPECT_THAT(logged.step_values(LogTarget::kCallbacks),
              ElementsAre(scalar("x", 2), scalar("x_step", 2)));
  EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks),
              ElementsAre(scalar("x", 2), scalar("x_epoch", 2)));
}

TEST(Logged, TargetsSeeWhatIsMeantForThem) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("both", 1.0, {.prog_bar = true});
  logged.log("file", 2.0);
  logged.log("bar", 3.0, {.prog_bar = true, .logger = false});
  logged.log("neither", 4.0, {.logger = false});
  EXPECT_THAT(logged.step_values(LogTarget::kLogger),
              ElementsAre(scalar("both", 1), scalar("file", 2)));
  EXPECT_THAT(logged.step_values(LogTarget::kProgressBar),
              ElementsAre(scalar("both", 1), scalar("bar", 3)));
  EXPECT_EQ(logged.step_values(LogTarget::kCallbacks).size(), 4u);
}

TEST(Logged, OnlyTheLatestStepShows) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("a", 1.0);
  logged.log("b", 2.0);
  logged.begin_step(1);
  logged.log("b", 3.0);
  EXPECT_THAT(logged.step_values(LogTarget::kCallbacks), ElementsAre(scalar("b", 3)));
  logged.begin_step(1);
  EXPECT_THAT(logged.step_values(LogTarget::kCallbacks), IsEmpty());
}

TEST(Logged, EpochMeanIsWeightedByBatchSize) {
  for (const bool on_device : {false, true}) {
    LoggedValues logged(false, true);
    const auto log = [&](double value, const LogOptions& options) {
      on_device ? logged.log("x", elsewhere(value), options) : logged.log("x", value, options);
    };
    logged.begin_step(30);
    log(1.0, {});
    logged.begin_step(10);
    log(2.0, {});
    logged.begin_step(10);
    log(5.0, {.batch_size = 20});
    EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), ElementsAre(scalar("x", 150.0 / 60)))
        << on_device;
  }
}

TEST(Logged, ReducesAsAsked) {
  LoggedValues logged(false, true);
  for (const double value : {3.0, -1.0, 2.0}) {
    logged.begin_step(100);
    for (const char* reduce : {"mean", "sum", "min", "max"}) {
      logged.log(reduce, value, {.reduce = reduce});
    }
  }
  EXPECT_THAT(
      logged.epoch_values(LogTarget::kCallbacks),
      ElementsAre(scalar("mean", 4.0 / 3), scalar("sum", 4), scalar("min", -1), scalar("max", 3)));
}

TEST(Logged, BatchSizeZeroEntersNoReduction) {
  for (const char* reduce : {"mean", "sum", "min", "max"}) {
    LoggedValues logged(false, true);
    logged.begin_step(0);
    logged.log("x", std::nan(""), {.reduce = reduce});
    EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), IsEmpty());
    logged.begin_step(2);
    logged.log("x", 7.0, {.reduce = reduce});
    EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), ElementsAre(scalar("x", 7))) << reduce;
  }
}

TEST(Logged, LaterChangesOfTheTensorDoNotShow) {
  for (const bool on_device : {false, true}) {
    LoggedValues logged(true, true);
    at::Tensor value = on_device ? elsewhere(1) : at::ones({1});
    logged.begin_step(1);
    logged.log("x", value);
    value.add_(5);
    EXPECT_EQ(logged.step_values(LogTarget::kLogger)[0].value, 1) << on_device;
    EXPECT_EQ(logged.epoch_values(LogTarget::kLogger)[0].value, 1) << on_device;
  }
}

TEST(Logged, KeepsNoGraphAlive) {
  LoggedValues logged(true, true);
  float memory[3] = {1, 2, 3};
  bool freed = false;
  {
    const auto weight =
        torch::from_blob(memory, {3}, [&](void*) { freed = true; }).requires_grad_();
    const auto loss = (weight * weight).sum();  // its graph holds weight
    logged.begin_step(1);
    logged.log("host", loss);
    logged.log("device", at::_neg_view(loss));
  }
  EXPECT_TRUE(freed);
}

TEST(Logged, ValuesOfHostAndDevicesAreReadInOrder) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("a", elsewhere(1));
  logged.log("b", 2.0);
  logged.log("c", elsewhere(3));
  logged.begin_step(1);
  logged.log("a", 4.0);
  logged.log("b", elsewhere(5));
  logged.log("c", elsewhere(6));
  EXPECT_THAT(logged.step_values(LogTarget::kCallbacks),
              ElementsAre(scalar("a", 4), scalar("b", 5), scalar("c", 6)));
}

TEST(Logged, OrderOfNamesMayChange) {
  LoggedValues logged(false, true);
  const std::vector<std::vector<std::string>> steps = {
      {"a", "b", "c"}, {"c", "b", "a"}, {"b"}, {"a", "d", "b", "c"}, {"a", "d", "b", "c"}};
  for (const auto& names : steps) {
    logged.begin_step(1);
    for (const std::string& name : names) logged.log(name, 1.0, {.reduce = "sum"});
  }
  EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks),
              ElementsAre(scalar("a", 4), scalar("b", 5), scalar("c", 4), scalar("d", 2)));
}

TEST(Logged, AllocatesNothingOnceANameIsKnown) {
  LoggedValues logged(true, true);
  const at::Tensor loss = at::ones({}, at::requires_grad());
  const auto step = [&] {
    logged.begin_step(32);
    logged.log("a_name_that_is_longer_than_a_short_string", loss, {.prog_bar = true});
    logged.log("lr", 0.1, {.batch_size = 3});
  };
  step();
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(allocations, before);
}

TEST(Logged, LatestNeedsNoReading) {
  LoggedValues logged(false, true);
  logged.begin_step(1);
  logged.log("acc", 0.5, {.prog_bar = true});
  logged.log("other", 0.5);
  EXPECT_THAT(logged.latest(LogTarget::kProgressBar), IsEmpty());
  logged.epoch_values(LogTarget::kCallbacks);
  logged.reset_epoch();
  logged.begin_step(1);
  logged.log("acc", 0.75, {.prog_bar = true});
  EXPECT_THAT(logged.latest(LogTarget::kProgressBar), ElementsAre(scalar("acc", 0.5)));
}

TEST(Logged, ResetBeginsAnEpoch) {
  LoggedValues logged(false, true);
  logged.begin_step(1);
  logged.log("x", 1.0);
  logged.log("y", elsewhere(1.0));
  logged.reset_epoch();
  EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), IsEmpty());
  logged.begin_step(1);
  logged.log("y", elsewhere(3.0));
  EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), ElementsAre(scalar("y", 3)));
}

TEST(Logged, MetricIsComputedOverTheEpochAndReset) {
  LoggedValues logged(true, false);
  const auto metric = std::make_shared<levin::metrics::Mean>();
  for (const double value : {1.0, 2.0, 6.0}) {
    logged.begin_step(1);
    metric->update(value);
    logged.log("m", metric);
  }
  EXPECT_THAT(logged.step_values(LogTarget::kCallbacks), IsEmpty());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), ElementsAre(scalar("m", 3)));
  }
  logged.reset_epoch();
  EXPECT_TRUE(std::isnan(metric->compute().item<double>()));
  EXPECT_THAT(logged.epoch_values(LogTarget::kCallbacks), IsEmpty());
}

TEST(Logged, MetricOnStepShowsWhatItHasSoFar) {
  LoggedValues logged(false, true);
  const auto metric = std::make_shared<levin::metrics::Sum>();
  for (const double value : {1.0, 2.0}) {
    logged.begin_step(1);
    metric->update(value);
    logged.log("m", metric, {.on_step = true});
  }
  EXPECT_THAT(logged.step_values(LogTarget::kLogger), ElementsAre(scalar("m_step", 3)));
}

TEST(Logged, MistakesAreNamed) {
  const auto metric = std::make_shared<levin::metrics::Mean>();
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("x", 1.0);
  logged.log("m", metric);
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] { logged.log("v", at::ones({2, 3})); },
       "observe.log.shape: 'v' got the shape [2, 3], wanted one element; log its mean() or sum()"},
      {[&] { logged.log("v", at::Tensor()); }, "observe.log.shape: 'v' got an undefined tensor"},
      {[&] {
         logged.log("v", std::make_shared<levin::metrics::ConfusionMatrix>(
                             levin::metrics::ClassificationOptions{.task = "binary"}));
       },
       "observe.log.shape: 'v' got a confusion matrix, wanted a metric of one number or one per"},
      {[&] { logged.log("v", 1.0, {.sync_dist = true, .rank_zero_only = true}); },
       "observe.log.sync_dist: 'v' got sync_dist=true and rank_zero_only=true"},
      {[&] { logged.log("v", metric, {.on_step = true, .sync_dist = true}); },
       "observe.log.sync_dist: 'v' got sync_dist=true with a metric that is read on_step"},
      {[&] { logged.log("v", 1.0, {.labels = {"a"}}); }, "observe.log.labels: 'v' got labels with"},
      {[&] { logged.log("v", metric, {.labels = {"a"}}); },
       "observe.log.labels: 'v' got labels with a metric of a single value"},
      {[&] { logged.log("x", 1.0, {.sync_dist = true}); }, "observe.log.options"},
      {[&] { logged.log("x", 1.0, {.rank_zero_only = true}); }, "observe.log.options"},
      {[&] { logged.log("v", at::ones({}, at::kComplexFloat)); }, "observe.log.dtype: 'v'"},
      {[&] { logged.log("w", 1.0, {.reduce = "median"}); },
       "observe.log.reduce: 'w' got reduce 'median', wanted mean, sum, min or max"},
      {[&] { logged.log("w", metric, {.reduce = "sum"}); }, "observe.log.reduce: 'w'"},
      {[&] { logged.log("w", 1.0, {.on_step = false}); }, "observe.log.when: 'w'"},
      {[&] { logged.log("x", 1.0, {.prog_bar = true}); },
       "observe.log.options: 'x' was logged before with prog_bar=false"},
      {[&] { logged.log("x", 1.0, {.logger = false}); }, "observe.log.options"},
      {[&] { logged.log("x", 1.0, {.on_epoch = true}); }, "observe.log.options"},
      {[&] { logged.log("x", 1.0, {.on_step = false}); }, "observe.log.options"},
      {[&] { logged.log("x", 1.0, {.reduce = "sum"}); }, "observe.log.options"},
      {[&] { logged.log("x", metric); },
       "observe.log.kind: 'x' was logged as a value before but as a metric now"},
      {[&] { logged.log("m", 1.0); }, "observe.log.kind"},
      {[&] { logged.log("m", std::make_shared<levin::metrics::Mean>()); }, "observe.log.kind"},
      {[&] { logged.log("n", std::shared_ptr<levin::Metric>()); }, "observe.log.kind"},
      {[&] { logged.log("x", 1.0, {.batch_size = -1}); },
       "observe.log.batch_size: 'x' got the batch size -1"}};
  for (const auto& [run, expected] : cases) EXPECT_THAT(error_of(run), HasSubstr(expected));
}

TEST(Logged, OptionsThatSayTheDefaultAreNoChange) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("x", 1.0);
  EXPECT_NO_THROW(logged.log("x", 1.0, {.on_step = true, .on_epoch = false, .batch_size = 9}));
}

TEST(LogOptions, FieldsStandInLightningsOrder) {
  const LogOptions options{true, false, true, false, "max", true, 3};
  EXPECT_TRUE(options.prog_bar && !options.logger);
  EXPECT_TRUE(options.on_step == true && options.on_epoch == false);
  EXPECT_TRUE(options.reduce == "max" && options.sync_dist && options.batch_size == 3);
}

std::shared_ptr<levin::metrics::Recall> recall_of_three_classes() {
  auto recall = std::make_shared<levin::metrics::Recall>(
      levin::metrics::ClassificationOptions{.num_classes = 3, .average = "none"});
  // Class 0 is found in one of two samples, class 1 in both, class 2 in one of four.
  recall->update(at::tensor({0, 1, 1, 1, 2, 0, 0, 1}), at::tensor({0, 0, 1, 1, 2, 2, 2, 2}));
  return recall;
}

TEST(LoggedMetricPerClass, IsReadUnderANamePerClass) {
  LoggedValues logged(false, true);
  logged.begin_step(8);
  logged.log("recall", recall_of_three_classes());
  EXPECT_THAT(
      logged.epoch_values(LogTarget::kLogger),
      ElementsAre(scalar("recall/0", 0.5), scalar("recall/1", 1), scalar("recall/2", 0.25)));
}

TEST(LoggedMetricPerClass, HasTheNamesOfItsLabelsAndThoseOfAValue) {
  LoggedValues logged(false, true);
  logged.begin_step(8);
  logged.set_dataloader_index(1);
  const levin::LogOptions options{.on_step = true, .labels = {"cat", "dog", "a/b"}};
  logged.log("r", recall_of_three_classes(), options);
  EXPECT_THAT(logged.step_values(LogTarget::kLogger),
              ElementsAre(scalar("r/cat_step/dataloader_idx_1", 0.5),
                          scalar("r/dog_step/dataloader_idx_1", 1),
                          scalar("r/a/b_step/dataloader_idx_1", 0.25)));
  EXPECT_THAT(
      logged.epoch_values(LogTarget::kCallbacks),
      ElementsAre(scalar("r/cat/dataloader_idx_1", 0.5),
                  scalar("r/cat_epoch/dataloader_idx_1", 0.5), scalar("r/dog/dataloader_idx_1", 1),
                  scalar("r/dog_epoch/dataloader_idx_1", 1), scalar("r/a/b/dataloader_idx_1", 0.25),
                  scalar("r/a/b_epoch/dataloader_idx_1", 0.25)));
}

TEST(LoggedMetricPerClass, OfNoSampleHasNoName) {
  LoggedValues logged(false, true);
  logged.begin_step(1);
  const auto f1 = std::make_shared<levin::metrics::F1Score>(levin::metrics::ClassificationOptions{
      .task = "multilabel", .num_labels = 2, .average = "none"});
  logged.log("f1", f1);
  EXPECT_THAT(logged.epoch_values(LogTarget::kLogger), IsEmpty());
  f1->update(at::ones({2, 2}, at::kLong), at::ones({2, 2}, at::kLong));
  EXPECT_THAT(logged.epoch_values(LogTarget::kLogger),
              ElementsAre(scalar("f1/0", 1), scalar("f1/1", 1)));
}

TEST(LoggedMetricPerClass, WithAnotherNumberOfLabelsIsAnError) {
  LoggedValues logged(false, true);
  logged.begin_step(8);
  logged.log("recall", recall_of_three_classes(), {.labels = {"cat", "dog"}});
  EXPECT_THAT(
      error_of([&] { logged.epoch_values(LogTarget::kLogger); }),
      HasSubstr("observe.log.labels: 'recall' got 2 labels for a metric of 3 values, wanted 3"));
}

/// A metric of a matrix that is no ConfusionMatrix.
struct Matrix : levin::metrics::Accumulated {
  at::Tensor compute() const override { return at::zeros({2, 2}); }
  bool is_scalar() const override { return false; }
};

TEST(LoggedMetricPerClass, OfAMatrixIsAnErrorWhenItIsRead) {
  LoggedValues logged(false, true);
  logged.begin_step(8);
  logged.log("m", std::make_shared<Matrix>());
  EXPECT_THAT(error_of([&] { logged.epoch_values(LogTarget::kLogger); }),
              HasSubstr("observe.log.shape: 'm' is a metric whose value has the shape [2, 2]"));
}

TEST(Logged, ARankOtherThanZeroLeavesOutWhatOnlyRankZeroLogs) {
  const auto metric = std::make_shared<levin::metrics::Mean>();
  for (const bool is_rank_zero : {true, false}) {
    LoggedValues logged(true, true);
    logged.set_rank_zero(is_rank_zero);
    logged.begin_step(1);
    logged.log("a", 1.0, {.rank_zero_only = true});
    logged.log("b", at::ones({}), {.rank_zero_only = true});
    logged.log("m", metric, {.rank_zero_only = true});
    logged.log("all", 2.0);
    EXPECT_EQ(logged.step_values(LogTarget::kLogger).size(), is_rank_zero ? 3 : 1);
    EXPECT_EQ(logged.epoch_values(LogTarget::kLogger).size(), is_rank_zero ? 4 : 1);
  }
}

/// Two ranks that exchange what sync_step() gathers: the second answers as `other` does.
levin::LoggedValues::Gather with(LoggedValues& other, int64_t& exchanges) {
  return [&](const levin::State& own) {
    ++exchanges;
    levin::State theirs;
    other.sync_step([&](const levin::State& state) {
      theirs = state;
      return std::vector<levin::State>{state};
    });
    return std::vector<levin::State>{own, theirs};
  };
}

TEST(SyncDist, ReducesTheStepsValuesOverRanksInOneExchange) {
  LoggedValues first(true, true), second(true, true);
  int64_t exchanges = 0;
  for (const auto& [logged, value] : {std::pair(&first, 1.0), std::pair(&second, 4.0)}) {
    logged->begin_step(value == 1.0 ? 3 : 1);
    logged->log("mean", value, {.sync_dist = true});
    logged->log("sum", elsewhere(value), {.reduce = "sum", .sync_dist = true});
    logged->log("low", at::scalar_tensor(value), {.reduce = "min", .sync_dist = true});
    logged->log("high", value, {.reduce = "max", .sync_dist = true});
    logged->log("own", value);
  }
  first.sync_step(with(second, exchanges));
  EXPECT_EQ(exchanges, 1);
  // As torch.distributed.all_reduce, in which batch sizes do not count.
  const auto expected =
      ElementsAre(scalar("mean_step", 2.5), scalar("sum_step", 5), scalar("low_step", 1),
                  scalar("high_step", 4), scalar("own_step", 1));
  EXPECT_THAT(first.step_values(LogTarget::kLogger), expected);
  EXPECT_EQ(first.take_step_values().front(), scalar("mean", 2.5));
  EXPECT_EQ(first.epoch_values(LogTarget::kLogger).front(), scalar("mean_epoch", 1));
}

TEST(SyncDist, LeavesOutABatchWithoutSamplesAndRanksThatDidNotLog) {
  LoggedValues first(true, false), second(true, false);
  int64_t exchanges = 0;
  first.begin_step(2);
  first.log("x", 3.0, {.sync_dist = true});
  second.begin_step(0);
  second.log("x", 9.0, {.sync_dist = true});
  second.log("y", 5.0, {.sync_dist = true});
  first.sync_step(with(second, exchanges));
  EXPECT_THAT(first.step_values(LogTarget::kLogger), ElementsAre(scalar("x", 3)));
}

TEST(SyncDist, ExchangesNothingWhereNoNameAsksForIt) {
  LoggedValues logged(true, false);
  logged.begin_step(1);
  logged.log("x", 3.0);
  logged.log("epoch", 3.0, {.on_step = false, .on_epoch = true, .sync_dist = true});
  logged.sync_step([](const levin::State&) -> std::vector<levin::State> {
    ADD_FAILURE() << "an exchange";
    return {};
  });
}

}  // namespace
