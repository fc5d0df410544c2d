#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "levin/accelerator/engine/engine.h"
#include "levin/accelerator/prepared/prepared.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"

namespace {

using levin::Accelerator;
using levin::PreparedOptimizer;
using levin::optim::adamw;
using levin::optim::sgd;
using levin::test::error_id;
using levin::test::expect_same_weights;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::OwnNet;
using small_nets::whole;

/// Two models and an optimizer for each, as of a generator and a discriminator.
struct Pair {
  Accelerator accelerator{{.cpu = true}};
  OwnNet one, two;
  std::vector<PreparedOptimizer> optimizers;

  Pair() {
    accelerator.prepare(one, two);
    optimizers = std::get<0>(accelerator.prepare(
        std::vector<levin::OptimizerConfig>{sgd({.lr = 0.1}).of(one), sgd({.lr = 0.1}).of(two)}));
  }
  void backward() {
    const levin::Batch batch = whole(dataset(8));
    (loss_of(one, batch) + loss_of(two, batch)).backward();
  }
};

bool any_requires_grad(const OwnNet& net) {
  const auto parameters = net->parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

/// One model with one optimizer.
struct One {
  Accelerator accelerator{{.cpu = true}};
  OwnNet net;
  PreparedOptimizer optimizer;

  explicit One(const levin::OptimizerConfig& config)
      : optimizer((accelerator.prepare(net), std::get<0>(accelerator.prepare(config)))) {}
  void step() {
    optimizer.zero_grad();
    accelerator.backward(loss_of(net, whole(dataset(8))));
    optimizer.step();
  }
};

TEST(PreparedOptimizer, CountsItsSteps) {
  One one(sgd({.lr = 0.1}));
  EXPECT_EQ(one.optimizer.steps(), 0);
  one.step();
  one.step();
  EXPECT_EQ(one.optimizer.steps(), 2);
}

TEST(PreparedOptimizer, MovesItsScheduleOnWithEachStep) {
  One one(sgd({.lr = 0.8}).schedule(levin::optim::step({.step_size = 2, .gamma = 0.5})));
  std::vector<double> rates;
  for (int step = 0; step < 5; ++step) {
    rates.push_back(one.optimizer.learning_rate());
    one.step();
  }
  EXPECT_EQ(rates, (std::vector<double>{0.8, 0.8, 0.4, 0.4, 0.2}));
}

TEST(PreparedOptimizer, WithoutScheduleKeepsItsRate) {
  One one(sgd({.lr = 0.3}));
  one.step();
  EXPECT_EQ(one.optimizer.learning_rate(), 0.3);
}

TEST(PreparedOptimizer, ZeroGradDropsTheGradientsOfItsOwnParameters) {
  Pair pair;
  pair.backward();
  pair.optimizers[0].zero_grad();
  EXPECT_FALSE(pair.one->out->weight.grad().defined());
  EXPECT_TRUE(pair.two->out->weight.grad().defined());
}

TEST(PreparedOptimizer, CopiesShareTheOptimizer) {
  One one(sgd({.lr = 0.1}));
  PreparedOptimizer copy = one.optimizer;
  copy.step();
  EXPECT_EQ(one.optimizer.steps(), 1);
}

TEST(PreparedOptimizer, ClipsTheGradientsOfItsOwnParametersOnly) {
  Pair pair;
  pair.backward();
  const at::Tensor others = pair.two->out->weight.grad().clone();
  pair.optimizers[0].clip_grad_norm(0.01);
  double squares = 0.0;
  for (const at::Tensor& parameter : pair.one->parameters()) {
    squares += parameter.grad().square().sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(squares), 0.01, 1e-5);
  EXPECT_TRUE(torch::equal(pair.two->out->weight.grad(), others));
}

TEST(PreparedOptimizer, ToggleFreezesTheParametersOfTheOthersUntilUntoggle) {
  Pair pair;
  pair.optimizers[0].toggle();
  EXPECT_TRUE(any_requires_grad(pair.one));
  EXPECT_FALSE(any_requires_grad(pair.two));
  pair.optimizers[0].untoggle();
  EXPECT_TRUE(any_requires_grad(pair.two));
}

TEST(PreparedOptimizer, ToggledTwiceIsUntoggledByOne) {
  Pair pair;
  pair.optimizers[0].toggle();
  pair.optimizers[0].toggle();
  pair.optimizers[0].untoggle();
  EXPECT_TRUE(any_requires_grad(pair.two));
}

TEST(PreparedOptimizer, UntoggleLeavesFrozenWhatTheUserFroze) {
  Pair pair;
  pair.two->out->weight.set_requires_grad(false);
  pair.optimizers[0].toggle();
  pair.optimizers[0].untoggle();
  EXPECT_FALSE(pair.two->out->weight.requires_grad());
  EXPECT_TRUE(pair.two->out->bias.requires_grad());
}

TEST(PreparedOptimizer, ToggleLeavesWhatIsItsOwnTooToTrain) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  auto [model, whole_net, part] = accelerator.prepare(net, sgd().of(net), sgd().of(net->out));
  part.toggle();
  EXPECT_TRUE(net->out->weight.requires_grad());
  EXPECT_FALSE(net->hidden->weight.requires_grad());
}

TEST(PreparedOptimizer, KnowsItsFrequency) {
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  accelerator.prepare(net);
  const auto optimizers = engine_of(accelerator).prepare_optimizers({sgd().frequency(3)});
  EXPECT_EQ(optimizers.front().frequency(), 3);
}

TEST(PreparedOptimizer, ItsStateInAnotherGoesOnBitForBit) {
  const auto config = [] {
    return adamw({.lr = 0.1}).schedule(levin::optim::step({.step_size = 2, .gamma = 0.5}));
  };
  One first(config()), second(config());
  for (int step = 0; step < 3; ++step) first.step();
  levin::load_module_state(*second.net, levin::module_state(*first.net));
  second.optimizer.load_state_dict(first.optimizer.state_dict());
  EXPECT_EQ(second.optimizer.steps(), 3);
  EXPECT_EQ(second.optimizer.learning_rate(), first.optimizer.learning_rate());
  first.step();
  second.step();
  expect_same_weights(*first.net, *second.net);
}

TEST(PreparedOptimizer, AStateWithoutTheScheduleItHasIsAnError) {
  One plain(sgd({.lr = 0.1}));
  One scheduled(sgd({.lr = 0.1}).schedule(levin::optim::constant()));
  EXPECT_EQ(error_id([&] { scheduled.optimizer.load_state_dict(plain.optimizer.state_dict()); }),
            "base.state.missing");
}

}  // namespace
