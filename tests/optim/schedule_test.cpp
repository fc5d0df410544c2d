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
    rate.set_steps(i);
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

TEST(Schedule, StateTakesUpAndRefusesAnothers) {
  auto optimizer = sgd();
  levin::optim::LearningRate rate(*optimizer, levin::optim::cosine(), 10);
  rate.set_steps(3);
  auto other = sgd();
  levin::optim::LearningRate resumed(*other, levin::optim::cosine(), 10);
  resumed.set_steps(resumed.steps_of(rate.state_dict(3)));
  EXPECT_EQ(other->groups()[0].lr, optimizer->groups()[0].lr);
  levin::optim::LearningRate linear(*other, levin::optim::linear(), 10);
  EXPECT_EQ(error_id([&] { linear.steps_of(rate.state_dict(3)); }), "optim.schedule.state");
}

TEST(Schedule, LambdaIsAnyFunction) {
  const auto schedule = levin::optim::lambda([](int64_t step) { return 1.0 / (1.0 + step); });
  EXPECT_EQ(schedule.factor(3, -1), 0.25);
}

}  // namespace
