#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/optim/learning_rate.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
std::unique_ptr<levin::optim::Optimizer> sgd() {
  return levin::optim::build_optimizer(levin::optim::sgd({.lr = 2.0}),
                                       {{"w", torch::zeros({1}).requires_grad_()}});
}

TEST(Schedule, TakesTheRunsLengthWhenItHasNone) {
  auto optimizer = sgd();
  levin::optim::LearningRate rate(*optimizer, levin::optim::linear(), 4);
  std::vector<double> rates;
  for (int64_t i = 1; i <= 5; ++i) {
    rates.push_back(optimizer->groups()[0].lr);
    rate.set(i, {});
  }
  EXPECT_EQ(rates, (std::vector<double>{2.0, 1.5, 1.0, 0.5, 0.0}));
}

TEST(Schedule, WarmupRisesFromZeroForEachKind) {
  for (const levin::Schedule& schedule :
       {levin::optim::constant({.warmup_steps = 4}), levin::optim::linear({.warmup_steps = 4}),
        levin::optim::cosine({.warmup_steps = 4}), levin::optim::step({.warmup_steps = 4})}) {
    EXPECT_EQ(schedule.factor(0, 100), 0.0) << schedule.name;
    EXPECT_EQ(schedule.factor(2, 100), 0.5) << schedule.name;
    EXPECT_EQ(schedule.factor(4, 100), 1.0) << schedule.name;
  }
}

TEST(Schedule, WithoutAnyEndIsAnError) {
  auto optimizer = sgd();
  try {
    levin::optim::LearningRate rate(*optimizer, levin::optim::cosine(), -1);
    FAIL();
  } catch (const levin::Error& error) {
    EXPECT_EQ(error.id(), "optim.schedule.total_steps");
  }
  EXPECT_EQ(error_id([&] { levin::optim::step({.step_size = 0}); }), "optim.schedule.options");
}

TEST(Schedule, OptionsThatMakeNoSenseAreErrors) {
  using levin::optim::cosine;
  using levin::optim::linear;
  const std::vector<std::function<void()>> mistakes = {
      [] { linear({.warmup_steps = 20, .total_steps = 10}); },
      [] { cosine({.warmup_steps = 20, .total_steps = 10}); },
      [] { cosine({.total_steps = -5}); },
      [] { cosine({.min_factor = -0.1}); },
      [] { linear({.end_factor = -1.0}); },
      [] { levin::optim::step({.gamma = -0.5}); },
      [] { levin::optim::lambda(nullptr); }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    EXPECT_EQ(error_id(mistakes[i]), "optim.schedule.options") << i;
  }
}

TEST(Schedule, OptionsOfTheOtherSchedulesAreChecked) {
  using namespace levin::optim;  // NOLINT
  const auto plateau = [] { return reduce_on_plateau({.monitor = "loss"}); };
  const std::vector<std::function<void()>> mistakes = {
      [] { multi_step({.milestones = {3, 2}}); },
      [] { multi_step({.milestones = {-1, 2}}); },
      [] { multi_step({.gamma = -0.1}); },
      [] { multi_step({.warmup_steps = -1}); },
      [] { exponential({.gamma = -0.1}); },
      [] { exponential({.warmup_steps = -1}); },
      [] { polynomial({.end_factor = 1.5}); },
      [] { polynomial({.power = -1.0}); },
      [] { polynomial({.warmup_steps = 5, .total_steps = 4}); },
      [] { one_cycle({.total_steps = 0}); },
      [] { one_cycle({.pct_start = 1.1}); },
      [] { one_cycle({.anneal_strategy = "cosine"}); },
      [] { one_cycle({.div_factor = 0.0}); },
      [] { one_cycle({.final_div_factor = -1.0}); },
      [] { cosine_with_restarts({.num_cycles = 0}); },
      [] { cosine_with_restarts({.warmup_steps = 5, .total_steps = 4}); },
      [] { cosine_warm_restarts({.t_0 = 0}); },
      [] { cosine_warm_restarts({.t_mult = 0}); },
      [] { cosine_warm_restarts({.min_factor = -0.1}); },
      [] { warmup_stable_decay({.decay_steps = -1}); },
      [] { warmup_stable_decay({.stable_steps = -2}); },
      [] { warmup_stable_decay({.warmup_steps = 5, .decay_steps = 6, .total_steps = 10}); },
      [] { warmup_stable_decay({.warmup_type = "sqrt"}); },
      [] { warmup_stable_decay({.decay_type = "sqrt"}); },
      [] { warmup_stable_decay({.min_factor = -0.1}); },
      [] { inverse_sqrt({.warmup_steps = -1}); },
      [] { inverse_sqrt({.timescale = 0}); },
      [] { sequential({}, {}); },
      [] { sequential({constant(), linear()}, {}); },
      [] { sequential({constant(), linear(), cosine()}, {4, 4}); },
      [] { sequential({constant(), linear()}, {-4}); },
      [] { sequential({constant().by_epoch(), linear()}, {4}); },
      [&] { sequential({constant(), plateau()}, {4}); },
      [] { chained({}); },
      [] { chained({constant(), linear().by_step(2)}); },
      [&] { chained({constant(), plateau()}); },
      [] { constant().by_epoch(0); },
      [] { constant().by_step(0); },
      [] { reduce_on_plateau({}); },
      [] { reduce_on_plateau({.monitor = "loss", .mode = "least"}); },
      [] { reduce_on_plateau({.monitor = "loss", .factor = 1.0}); },
      [] { reduce_on_plateau({.monitor = "loss", .patience = -1}); },
      [] { reduce_on_plateau({.monitor = "loss", .threshold = -1.0}); },
      [] { reduce_on_plateau({.monitor = "loss", .threshold_mode = "both"}); },
      [] { reduce_on_plateau({.monitor = "loss", .cooldown = -1}); },
      [] { reduce_on_plateau({.monitor = "loss", .min_lr = -1.0}); },
      [] { reduce_on_plateau({.monitor = "loss", .eps = -1.0}); }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    EXPECT_EQ(error_id(mistakes[i]), "optim.schedule.options") << i;
  }
}

TEST(Schedule, EndsNeedTheRunsLengthUnlessGiven) {
  using namespace levin::optim;  // NOLINT
  for (const levin::Schedule& schedule : {polynomial(), one_cycle(), cosine_with_restarts(),
                                          warmup_stable_decay({.decay_steps = 2})}) {
    EXPECT_EQ(error_id([&] { schedule.factor(1, -1); }), "optim.schedule.total_steps")
        << schedule.name;
    EXPECT_NO_THROW(schedule.factor(1, 10)) << schedule.name;
  }
  EXPECT_EQ(one_cycle().factor(100, 10), one_cycle().factor(9, 10));  // it stays at the end
}

TEST(Schedule, FrequencyMovesEveryNthInterval) {
  auto optimizer = sgd();
  levin::optim::LearningRate rate(*optimizer, levin::optim::linear().by_epoch(2), 9);
  std::vector<double> rates;
  for (int64_t epochs = 0; epochs <= 8; ++epochs) {
    rate.set(epochs, {});
    rates.push_back(optimizer->groups()[0].lr);
  }
  // 9 epochs are 4 moves.
  EXPECT_EQ(rates, (std::vector<double>{2.0, 2.0, 1.5, 1.5, 1.0, 1.0, 0.5, 0.5, 0.0}));
}

TEST(Schedule, StateTakesUpAndRefusesAnothers) {
  auto optimizer = sgd();
  levin::optim::LearningRate rate(*optimizer, levin::optim::cosine(), 10);
  rate.set(3, {});
  auto other = sgd();
  levin::optim::LearningRate resumed(*other, levin::optim::cosine(), 10);
  resumed.set(resumed.steps_of(rate.state_dict(3, {})), {});
  EXPECT_EQ(other->groups()[0].lr, optimizer->groups()[0].lr);
  levin::optim::LearningRate linear(*other, levin::optim::linear(), 10);
  EXPECT_EQ(error_id([&] { linear.steps_of(rate.state_dict(3, {})); }), "optim.schedule.state");
  levin::optim::LearningRate by_epoch(*other, levin::optim::cosine().by_epoch(), 10);
  EXPECT_EQ(error_id([&] { by_epoch.steps_of(rate.state_dict(3, {})); }), "optim.schedule.state");
  EXPECT_EQ(error_id([&] { rate.steps_of(by_epoch.state_dict(3, {})); }), "optim.schedule.state");
  EXPECT_EQ(by_epoch.steps_of(by_epoch.state_dict(3, {})), 3);
}

TEST(Schedule, LambdaIsAnyFunction) {
  const auto schedule = levin::optim::lambda([](int64_t step) { return 1.0 / (1.0 + step); });
  EXPECT_EQ(schedule.factor(3, -1), 0.25);
}

}  // namespace
