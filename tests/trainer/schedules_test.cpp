// Learning rates that follow epochs and logged values under the Trainer: when they move, what is
// logged, resumed at any step, on two ranks, replayed, and without the value that they follow. What
// Lightning does in the same settings is compared in tests/oracle/lightning_grid_test.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace schedules {
namespace {

using namespace small_run;  // NOLINT
using levin::OptimizerConfig;
using levin::optim::reduce_on_plateau;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Logs a score that goes up and down with the step, and trains as it is told.
struct Scored : Net {
  std::function<OptimizerConfig(Scored&)> configure;
  double spread = 0.0;  ///< of the score over ranks
  explicit Scored(std::function<OptimizerConfig(Scored&)> configure)
      : configure(std::move(configure)) {}
  explicit Scored(const OptimizerConfig& config) : Scored([config](Scored&) { return config; }) {}
  void validation_step(const levin::Batch&, int64_t) override {
    log("score", std::cos(0.7 * static_cast<double>(global_step())) + spread);
  }
  OptimizerConfig configure_optimizers() override { return configure(*this); }
};

/// Notes the rate of each optimizer before each step, and may stop the run.
struct Rates : levin::Callback {
  std::vector<std::vector<double>> rates;
  int64_t stop_at = -1;
  std::string state_key() const override { return "rates"; }
  void on_train_batch_start(levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                            int64_t) override {
    std::vector<double>& now = rates.emplace_back();
    for (const auto& optimizer : trainer.optimizers()) now.push_back(optimizer.learning_rate());
  }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == stop_at) trainer.request_stop("as asked");
  }
};

struct Trained {
  std::shared_ptr<Scored> net;
  std::vector<std::vector<double>> rates;
  std::vector<Recorder::Row> rows;
  levin::graph::CompiledReport report;
};

struct Options {
  int64_t epochs = 6;
  int64_t stop_at = -1;
  std::string ckpt_path;
  std::string compile = "no";
  levin::Portion val_check_interval = 1.0;
  int64_t accumulate = 1;
  bool monitors_rates = false;
};

/// 32 samples, 4 steps an epoch.
Trained train(const std::shared_ptr<Scored>& net, const std::string& root,
              const Options& wanted = {}) {
  auto options = quiet(root);
  const auto rates = std::make_shared<Rates>();
  const auto recorder = std::make_shared<Recorder>();
  recorder->folder = root;
  rates->stop_at = wanted.stop_at;
  options.accelerator = "cpu";
  options.max_epochs = wanted.epochs;
  options.seed = 11;
  options.logger = recorder;
  options.log_every_n_steps = 1;
  options.callbacks = {rates};
  if (wanted.monitors_rates) options.callbacks.push_back(levin::learning_rate_monitor());
  options.val_check_interval = wanted.val_check_interval;
  options.accumulate_grad_batches = wanted.accumulate;
  options.engine.compile = wanted.compile;
  levin::Trainer trainer(options);
  torch::manual_seed(3);
  for (at::Tensor& parameter : net->parameters()) {
    const at::NoGradGuard no_grad;
    parameter.normal_(0, 0.3);
  }
  trainer.fit(
      net, levin::DataLoader(dataset(32), {.batch_size = 8 / wanted.accumulate, .shuffle = true}),
      levin::DataLoader(dataset(8, 6), {.batch_size = 8}), {.ckpt_path = wanted.ckpt_path});
  return {net, rates->rates, recorder->rows, trainer.compile_report()};
}

Trained train(const OptimizerConfig& config, const Options& wanted = {}) {
  const Scratch root;
  return train(std::make_shared<Scored>(config), root.str(), wanted);
}

std::vector<double> first_of_each_epoch(const Trained& run, size_t optimizer = 0,
                                        size_t per_epoch = 4) {
  std::vector<double> rates;
  for (size_t i = 0; i < run.rates.size(); i += per_epoch) {
    rates.push_back(run.rates[i][optimizer]);
    for (size_t k = 1; k < per_epoch && i + k < run.rates.size(); ++k) {
      EXPECT_EQ(run.rates[i + k][optimizer], rates.back());
    }
  }
  return rates;
}

OptimizerConfig config_with(const levin::Schedule& schedule) {
  return OptimizerConfig(sgd({.lr = 1.0, .momentum = 0.5})).schedule(schedule);
}

TEST(Schedules, ByEpochMoveWhenAnEpochHasEnded) {
  const auto halves = levin::optim::exponential({.gamma = 0.5});
  EXPECT_THAT(first_of_each_epoch(train(config_with(halves.by_epoch()), {.epochs = 4})),
              ElementsAre(1.0, 0.5, 0.25, 0.125));
  EXPECT_THAT(first_of_each_epoch(train(config_with(halves.by_epoch(2)), {.epochs = 5})),
              ElementsAre(1.0, 1.0, 0.5, 0.5, 0.25));
  // The run's epochs are the schedule's total.
  EXPECT_THAT(
      first_of_each_epoch(train(config_with(levin::optim::linear().by_epoch()), {.epochs = 4})),
      ElementsAre(1.0, 0.75, 0.5, 0.25));
  // Epochs, whatever an accumulation window is.
  EXPECT_THAT(first_of_each_epoch(
                  train(config_with(halves.by_epoch()), {.epochs = 3, .accumulate = 2}), 0, 8),
              ElementsAre(1.0, 0.5, 0.25));
}

TEST(Schedules, ByStepMoveAfterEveryNthStep) {
  const Trained run =
      train(config_with(levin::optim::exponential({.gamma = 0.5}).by_step(3)), {.epochs = 2});
  std::vector<double> rates;
  for (const auto& now : run.rates) rates.push_back(now.front());
  EXPECT_THAT(rates, ElementsAre(1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25));
}

/// cos(0.7 * 4 n) after each epoch n = 1, 2, ...: -0.94, 0.78, -0.52, 0.20, 0.14, -0.46.
TEST(Schedules, APlateauFollowsTheValueOfTheValidation) {
  const auto plateau = reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 1});
  EXPECT_THAT(first_of_each_epoch(train(config_with(plateau))),
              ElementsAre(1.0, 1.0, 1.0, 0.5, 0.5, 0.25));
  EXPECT_THAT(first_of_each_epoch(train(config_with(plateau.by_epoch(2)))),
              ElementsAre(1.0, 1.0, 1.0, 1.0, 1.0, 1.0));  // 0.78, 0.20: better; -0.46 comes last
  const auto largest = reduce_on_plateau(
      {.monitor = "score", .mode = "max", .factor = 0.1, .patience = 0, .min_lr = 0.05});
  EXPECT_THAT(first_of_each_epoch(train(config_with(largest))),
              ElementsAre(1.0, 1.0, 1.0, 0.1, 0.05, 0.05));
}

/// After steps 2, 4, 6, ...: 0.17, -0.94, -0.49, 0.78, 0.75, -0.52, -0.93, 0.20.
TEST(Schedules, APlateauByStepsFollowsEachValidationOfAnEpoch) {
  const auto plateau =
      reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 0}).by_step(2);
  const Trained run = train(config_with(plateau), {.epochs = 4, .val_check_interval = int64_t{2}});
  EXPECT_THAT(first_of_each_epoch(run, 0, 2),
              ElementsAre(1.0, 1.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125));
}

TEST(Schedules, EachOptimizerHasItsOwn) {
  const Scratch root;
  const auto net = std::make_shared<Scored>([](Scored& scored) -> OptimizerConfig {
    const auto plateau = reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 1});
    return {OptimizerConfig(sgd({.lr = 1.0})).of(*scored.net->ptr(0)).schedule(plateau),
            OptimizerConfig(sgd({.lr = 2.0}))
                .of(*scored.net->ptr(1))
                .schedule(levin::optim::exponential({.gamma = 0.5}).by_epoch()),
            OptimizerConfig(sgd({.lr = 3.0})).of(*scored.net->ptr(4))};
  });
  const Trained run = train(net, root.str(), {.epochs = 4});
  EXPECT_THAT(first_of_each_epoch(run, 0), ElementsAre(1.0, 1.0, 1.0, 0.5));
  EXPECT_THAT(first_of_each_epoch(run, 1), ElementsAre(2.0, 1.0, 0.5, 0.25));
  EXPECT_THAT(first_of_each_epoch(run, 2), ElementsAre(3.0, 3.0, 3.0, 3.0));
}

struct Resumed {
  std::string name;
  levin::Schedule schedule;
  levin::Portion val_check_interval = 1.0;
};
std::ostream& operator<<(std::ostream& out, const Resumed& one) { return out << one.name; }

class SchedulesResumed : public testing::TestWithParam<Resumed> {};

// Stopped inside an epoch, at its last step and at the first of the next.
TEST_P(SchedulesResumed, EqualAnUninterruptedRunBitForBit) {
  const auto config = [] {
    return OptimizerConfig(levin::optim::adamw({.lr = 1e-2})).schedule(GetParam().schedule);
  };
  const Scratch whole_root;
  const Options options{.epochs = 5, .val_check_interval = GetParam().val_check_interval};
  const Trained whole = train(std::make_shared<Scored>(config()), whole_root.str(), options);
  for (const int64_t stop_at : {6, 8, 9}) {
    const Scratch root;
    Options first = options, second = options;
    first.stop_at = stop_at;
    const Trained stopped = train(std::make_shared<Scored>(config()), root.str(), first);
    ASSERT_EQ(stopped.rates.size(), static_cast<size_t>(stop_at));
    second.ckpt_path = root.str() + "/checkpoints/last";
    const Trained resumed = train(std::make_shared<Scored>(config()), root.str(), second);
    auto rates = stopped.rates;
    rates.insert(rates.end(), resumed.rates.begin(), resumed.rates.end());
    EXPECT_EQ(rates, whole.rates) << "stopped at " << stop_at;
    expect_same_weights(*resumed.net, *whole.net);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SchedulesResumed,
    testing::Values(
        Resumed{"Cosine", levin::optim::cosine().by_epoch()},
        Resumed{"EverySecondEpoch", levin::optim::exponential({.gamma = 0.3}).by_epoch(2)},
        Resumed{"EveryThirdStep", levin::optim::exponential({.gamma = 0.8}).by_step(3)},
        Resumed{
            "Plateau",
            reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 1, .cooldown = 1})},
        Resumed{"PlateauOfTraining",
                reduce_on_plateau({.monitor = "loss_epoch", .mode = "max", .patience = 0})},
        Resumed{"PlateauBySteps",
                reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 0}).by_step(2),
                int64_t{2}}),
    [](const auto& info) { return info.param.name; });

// A checkpoint of a validation is saved before the plateau has seen it.
TEST(Schedules, ARunFromTheCheckpointOfAValidationChecksItsValue) {
  for (const auto& [schedule, interval] :
       {std::pair(reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 0}),
                  levin::Portion(1.0)),
        {reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 0}).by_step(2),
         levin::Portion(int64_t{2})}}) {
    const auto make = [&] { return std::make_shared<Scored>(config_with(schedule)); };
    const Scratch root;
    auto options = quiet(root.str());
    options.max_epochs = 3;
    options.seed = 11;
    options.accelerator = "cpu";
    options.val_check_interval = interval;
    const auto rates = std::make_shared<Rates>();
    options.callbacks = {rates, levin::model_checkpoint({.dirpath = root.str() + "/kept",
                                                         .save_top_k = -1,
                                                         .save_on_train_epoch_end = false})};
    const auto fit = [&](const std::string& ckpt_path) {
      rates->rates.clear();
      torch::manual_seed(3);
      levin::Trainer(options).fit(
          make(), levin::DataLoader(dataset(32), {.batch_size = 8, .shuffle = true}),
          levin::DataLoader(dataset(8, 6), {.batch_size = 8}), {.ckpt_path = ckpt_path});
      return rates->rates;
    };
    const auto whole = fit("");
    const auto resumed = fit(root.str() + "/kept/epoch=1-step=8");
    ASSERT_EQ(whole.size(), 12U);
    EXPECT_EQ(resumed, std::vector(whole.begin() + 8, whole.end()));
  }
}

TEST(Schedules, AValueThatWasNotLoggedIsAnErrorThatNamesThoseThatWere) {
  const auto plateau = reduce_on_plateau({.monitor = "val_loss"});
  EXPECT_THAT(error_of([&] { train(config_with(plateau)); }),
              AllOf(StartsWith("trainer.monitor: nothing named 'val_loss' was logged, only ["),
                    HasSubstr("score")));
}

TEST(Schedules, WithoutStrictAValueThatWasNotLoggedLeavesTheCheckOut) {
  const auto lenient = reduce_on_plateau({.monitor = "val_loss", .patience = 0, .strict = false});
  EXPECT_THAT(first_of_each_epoch(train(config_with(lenient), {.epochs = 3})),
              ElementsAre(1.0, 1.0, 1.0));
  EXPECT_THAT(first_of_each_epoch(train(config_with(lenient.by_step(2)), {.epochs = 3})),
              ElementsAre(1.0, 1.0, 1.0));
}

TEST(Schedules, TheMonitorLogsARateByEpochOnceAnEpoch) {
  const auto rows = [](const levin::Schedule& schedule) {
    const Trained run = train(config_with(schedule), {.epochs = 2, .monitors_rates = true});
    std::vector<double> rates;
    for (const Recorder::Row& row : run.rows) {
      if (row.name == "lr-SGD") rates.push_back(row.value);
    }
    return rates;
  };
  const auto halves = levin::optim::exponential({.gamma = 0.5});
  EXPECT_THAT(rows(halves.by_epoch()), ElementsAre(1.0, 0.5));
  EXPECT_THAT(rows(reduce_on_plateau({.monitor = "score"})), ElementsAre(1.0, 1.0));
  EXPECT_THAT(rows(halves),
              ElementsAre(1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125));
}

// A replayed step reads the rate that the last epoch left.
TEST(Schedules, ReplayedStepsFollowThem) {
  for (const levin::Schedule& schedule :
       {levin::optim::cosine().by_epoch(),
        reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 0})}) {
    const OptimizerConfig config =
        OptimizerConfig(levin::optim::adamw({.lr = 1e-2})).schedule(schedule);
    const Trained eager = train(config, {.epochs = 12});
    const Trained replayed = train(config, {.epochs = 12, .compile = "replay"});
    EXPECT_GE(levin::test::num_replayed(replayed.report), 20);
    EXPECT_EQ(replayed.rates, eager.rates);
    EXPECT_GT(eager.rates.front(), eager.rates.back());
    expect_same_weights(*replayed.net, *eager.net);
  }
}

TEST(Schedules, TwoRanksHaveTheSameRates) {
  const Scratch root;
  const auto found = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    auto options = quiet(folder.string());
    const auto rates = std::make_shared<Rates>();
    options.max_epochs = 6;
    options.seed = 11;
    options.accelerator = "cpu";
    options.enable_checkpointing = false;
    options.callbacks = {rates};
    const auto net = std::make_shared<Scored>(
        config_with(reduce_on_plateau({.monitor = "score", .factor = 0.5, .patience = 1})));
    net->spread = rank == 0 ? 0.25 : -0.25;  // the mean is what it is on one rank
    levin::Trainer(options).fit(net, levin::DataLoader(dataset(32), {.batch_size = 4}),
                                levin::DataLoader(dataset(8, 6), {.batch_size = 4}));
    std::string text;
    for (const auto& now : rates->rates) text += fmt::format("{} ", now.front());
    return text;
  });
  std::string wanted;
  for (const double rate : {1.0, 1.0, 1.0, 0.5, 0.5, 0.25}) {
    for (int step = 0; step < 4; ++step) wanted += fmt::format("{} ", rate);
  }
  EXPECT_THAT(found, Each(wanted));
}

}  // namespace
}  // namespace schedules
