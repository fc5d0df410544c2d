// Groups of batches through the Accelerator's door: accumulate, no_sync, short last groups.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::run_world;
using small_nets::dataset;
using small_nets::expect_close_weights;
using small_nets::loss_of;
using small_nets::sequential;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

enum class Order { kZeroFirst, kZeroLast };

/// An epoch of 40 samples; returns the number of steps.
int64_t train(const torch::nn::Sequential& net, int64_t batch_size,
              const AcceleratorOptions& options, Order order = Order::kZeroFirst) {
  Accelerator accelerator(options);
  auto [model, optimizer, loader] =
      accelerator.prepare(net,
                          levin::OptimizerConfig(sgd({.lr = 0.1, .momentum = 0.9}))
                              .schedule(levin::optim::step({.step_size = 2, .gamma = 0.5})),
                          levin::DataLoader(dataset(40), {.batch_size = batch_size}));
  for (const auto& batch : loader) {
    const auto scope = accelerator.accumulate(model);
    if (order == Order::kZeroFirst) optimizer.zero_grad();
    accelerator.backward(loss_of(model, batch));
    accelerator.clip_grad_norm(0.7);
    optimizer.step();
    if (order == Order::kZeroLast) optimizer.zero_grad();
  }
  return optimizer.steps();
}

TEST(Accumulate, EqualsTheLargeBatch) {
  for (const Order order : {Order::kZeroFirst, Order::kZeroLast}) {
    const auto large = sequential(), accumulated = sequential();
    EXPECT_EQ(train(large, 8, {.cpu = true}, order), 5);
    EXPECT_EQ(train(accumulated, 2, {.gradient_accumulation_steps = 4, .cpu = true}, order), 5);
    expect_close_weights(*large, *accumulated);
  }
}

TEST(Accumulate, AShortLastGroupIsTheMeanOfItsBatches) {
  // 40 samples: two groups of 16 and one of 8.
  const auto large = sequential(), accumulated = sequential();
  EXPECT_EQ(train(large, 16, {.cpu = true}), 3);
  EXPECT_EQ(train(accumulated, 4, {.gradient_accumulation_steps = 4, .cpu = true}), 3);
  expect_close_weights(*large, *accumulated);
}

/// Trains 5 batches in groups of 4, so that the last group is one batch; what comes then, and the
/// gradients that it leaves.
struct ShortGroup {
  Accelerator accelerator{{.gradient_accumulation_steps = 4, .cpu = true}};
  torch::nn::Sequential net = sequential();
  levin::PreparedModel<torch::nn::SequentialImpl> model;
  levin::PreparedOptimizer optimizer;
  levin::Batch last;

  explicit ShortGroup(bool steps)
      : model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(sgd({.lr = 0.1})))) {
    auto [loader] = accelerator.prepare(levin::DataLoader(dataset(40), {.batch_size = 8}));
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      optimizer.zero_grad();
      accelerator.backward(loss_of(model, batch));
      if (steps || !accelerator.sync_gradients() || loader.loader().batches_done() < 5) {
        optimizer.step();
      }
      last = batch;
    }
  }
  at::Tensor gradient() const { return net->parameters()[0].grad().clone(); }
  /// Of the loss alone, by hand.
  at::Tensor gradient_of(const at::Tensor& loss) const {
    return torch::autograd::grad({loss}, {net->parameters()[0]})[0];
  }
  /// What one step of SGD has subtracted, over its rate.
  template <class Step>
  at::Tensor stepped_by(const Step& step) {
    const at::Tensor before = net->parameters()[0].detach().clone();
    step();
    return (before - net->parameters()[0].detach()) / 0.1;
  }
};

TEST(Accumulate, AShortGroupsFactorEndsWithIt) {
  ShortGroup run(/*steps=*/true);
  const auto whole = small_nets::whole(dataset(8));
  for (int i = 0; i < 2; ++i) {  // a loop without groups, and what is clipped in it
    run.optimizer.zero_grad();
    const at::Tensor wanted = run.gradient_of(loss_of(run.model, whole));
    const at::Tensor stepped = run.stepped_by([&] {
      run.accelerator.backward(loss_of(run.model, whole));
      run.accelerator.clip_grad_norm(1e9);
      run.optimizer.step();
    });
    EXPECT_TRUE(torch::allclose(stepped, wanted, 1e-3, 1e-5)) << i;
  }
}

TEST(Accumulate, AShortGroupIsSteppedWithAsAWholeAfterItsScope) {
  ShortGroup run(/*steps=*/false);
  const at::Tensor wanted = run.gradient_of(loss_of(run.model, run.last));
  const at::Tensor stepped = run.stepped_by([&] { run.optimizer.step(); });
  EXPECT_TRUE(torch::allclose(stepped, wanted, 1e-3, 1e-5));
}

TEST(Accumulate, AShortGroupThatWaitsKeepsItsScaleBesideLaterGradients) {
  ShortGroup run(/*steps=*/false);
  const auto more = small_nets::whole(dataset(8));
  const at::Tensor wanted =
      run.gradient_of(loss_of(run.model, run.last)) + run.gradient_of(loss_of(run.model, more));
  const at::Tensor stepped = run.stepped_by([&] {
    run.accelerator.backward(loss_of(run.model, more));
    run.optimizer.step();
  });
  EXPECT_TRUE(torch::allclose(stepped, wanted, 1e-3, 1e-5));
}

TEST(Accumulate, AfterALoadedStateAGroupBegins) {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
  const auto batch = small_nets::whole(dataset(8));
  const levin::Checkpoint start = accelerator.state_dict();
  const auto train = [&](int64_t batches) {
    std::vector<bool> synced;
    for (int64_t i = 0; i < batches; ++i) {
      const auto scope = accelerator.accumulate(model);
      synced.push_back(accelerator.sync_gradients());
      optimizer.zero_grad();
      accelerator.backward(loss_of(model, batch));
      optimizer.step();
    }
    return synced;
  };
  train(2);
  accelerator.load_state_dict(start);
  EXPECT_EQ(train(3), (std::vector<bool>{false, false, true}));
  auto alone = sequential();
  torch::optim::SGD by_hand(alone->parameters(), 0.1);
  torch::nn::functional::cross_entropy(alone->forward(batch["image"]), batch["label"]).backward();
  by_hand.step();
  expect_close_weights(*alone, *net);
}

TEST(Accumulate, UnderALossScaleIsTheSame) {
  const auto large = sequential(), accumulated = sequential();
  train(large, 16, {.mixed_precision = "fp16", .cpu = true});
  train(accumulated, 4, {.mixed_precision = "fp16", .gradient_accumulation_steps = 4, .cpu = true});
  const auto mine = large->parameters(), theirs = accumulated->parameters();
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-2, 1e-3)) << i;
  }
}

TEST(Accumulate, OnTwoRanksEqualsOne) {
  const auto one = sequential();
  train(one, 16, {.cpu = true});
  const auto words = run_world(2, [&](int64_t, const auto&) {
    const auto two = sequential();
    train(two, 2, {.gradient_accumulation_steps = 4, .cpu = true, .strategy = "ddp"});
    const auto mine = one->parameters(), theirs = two->parameters();
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!torch::allclose(mine[i], theirs[i], 1e-5, 1e-6)) return std::string("differs");
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Accumulate, TellsWhichBatchesAreSteppedWith) {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto [loader] = accelerator.prepare(levin::DataLoader(dataset(10), {.batch_size = 2}));
  std::vector<bool> synced;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for ([[maybe_unused]] const auto& batch : loader) {
      const auto scope = accelerator.accumulate();
      synced.push_back(accelerator.sync_gradients());
    }
  }
  EXPECT_EQ(synced, (std::vector<bool>{false, false, true, false, true,  //
                                       false, false, true, false, true}));
}

TEST(Accumulate, AStepBetweenTheBatchesOfAGroupIsAnError) {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
  {
    const auto scope = accelerator.accumulate(model);
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
    optimizer.step();
  }
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_THAT(error_of([&] { optimizer.step(); }),
              StartsWith("accelerator.step: step() was called after 1 of the 3 batches of an "
                         "accumulation window"));
}

TEST(Accumulate, ForgetsAnOptimizerWithItsModule) {
  Accelerator accelerator({.mixed_precision = "fp16", .cpu = true});
  for (int i = 0; i < 3; ++i) {
    auto net = sequential();
    auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
    optimizer.step();
    EXPECT_FALSE(optimizer.step_was_skipped());
    accelerator.free_memory();
  }
}

TEST(Accumulate, WithoutItEveryBatchIsAStep) {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
  accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
  optimizer.step();
  EXPECT_EQ(optimizer.steps(), 1);
}

/// What a run of so many plain steps says.
std::string said_by(const AcceleratorOptions& options, int64_t steps, bool groups = false) {
  ::testing::internal::CaptureStderr();
  Accelerator accelerator(options);
  auto [model, optimizer] = accelerator.prepare(sequential(), sgd({.lr = 0.1}));
  const auto batch = small_nets::whole(dataset(8));
  for (int64_t i = 0; i < steps; ++i) {
    std::optional<levin::AccumulateScope> scope;
    if (groups) scope.emplace(accelerator.accumulate());
    optimizer.zero_grad();
    accelerator.backward(loss_of(model, batch));
    optimizer.step();
  }
  return ::testing::internal::GetCapturedStderr();
}

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(UnusedOptions, AreToldOfOnce) {
  const std::string groups = said_by({.gradient_accumulation_steps = 3, .cpu = true}, 30);
  EXPECT_EQ(count_of(groups, "accelerator.accumulate: gradient_accumulation_steps = 3, but no"), 1);
  EXPECT_THAT(groups, HasSubstr("`const auto scope = accelerator.accumulate();`"));
  const std::string compile = said_by({.cpu = true, .engine = {.compile = "replay"}}, 30);
  EXPECT_EQ(count_of(compile, "accelerator.compile: compile = replay, but no step was recorded"),
            1);
  EXPECT_THAT(compile, HasSubstr("`accelerator.compile("));
  const std::string loaders =
      said_by({.cpu = true, .dataloader_config = {.split_batches = true}}, 30);
  EXPECT_EQ(count_of(loaders, "accelerator.loaders: "), 1);
}

TEST(UnusedOptions, ThereIsNothingToTellOfTheOthers) {
  EXPECT_EQ(said_by({.cpu = true}, 30), "");
  EXPECT_EQ(said_by({.gradient_accumulation_steps = 2, .cpu = true}, 30, /*groups=*/true), "");
}

TEST(Accumulate, WantsAtLeastOneBatch) {
  EXPECT_THAT(error_of([] { Accelerator({.gradient_accumulation_steps = 0, .cpu = true}); }),
              StartsWith("accelerator.accumulate: got gradient_accumulation_steps = 0"));
}

TEST(NoSync, KeepsGradientsToTheirRank) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Accelerator accelerator({.cpu = true, .strategy = "ddp"});
    auto net = sequential();
    auto [model] = accelerator.prepare(net);
    const auto sum = [&](double factor) {
      accelerator.backward(loss_of(model, small_nets::whole(dataset(8))) * factor);
      const double own = net->parameters()[0].grad().abs().sum().item<double>();
      net->zero_grad();
      return own;
    };
    const double factor = rank == 0 ? 1.0 : 3.0;
    const double synced = sum(factor);
    double alone = 0;
    {
      const auto scope = accelerator.no_sync(model);
      alone = sum(factor);
    }
    const bool right = std::abs(alone - synced * factor / 2.0) < 1e-5 * alone;
    return right && std::abs(sum(factor) - synced) < 1e-6 ? std::string() : std::string("differs");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Backward, OfALossOfAnotherModuleIsAnError) {
  Accelerator accelerator({.cpu = true});
  auto prepared = sequential(), forgotten = sequential();
  accelerator.prepare(prepared, sgd({.lr = 0.1}));
  EXPECT_THAT(
      error_of([&] { accelerator.backward(forgotten->forward(torch::ones({2, 6})).sum()); }),
      StartsWith("accelerator.loss: this loss depends on no parameter of a prepared module"));
}

TEST(StepScheduler, MovesByHandWhereAsked) {
  Accelerator accelerator({.cpu = true, .step_scheduler_with_optimizer = false});
  auto net = sequential();
  auto [model, optimizer] =
      accelerator.prepare(net, levin::OptimizerConfig(sgd({.lr = 0.8}))
                                   .schedule(levin::optim::step({.step_size = 1, .gamma = 0.5})));
  accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
  optimizer.step();
  EXPECT_EQ(optimizer.learning_rate(), 0.8);
  optimizer.step_schedule();
  EXPECT_EQ(optimizer.learning_rate(), 0.4);
}

TEST(StepScheduler, MovesByEpochWhenTold) {
  Accelerator accelerator({.cpu = true});
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(
      net, levin::OptimizerConfig(sgd({.lr = 0.8}))
               .schedule(levin::optim::exponential({.gamma = 0.5}).by_epoch(2)));
  std::vector<double> rates;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (int batch = 0; batch < 3; ++batch) {
      optimizer.zero_grad();
      accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
      optimizer.step();
    }
    rates.push_back(optimizer.learning_rate());
    optimizer.step_schedule();
  }
  EXPECT_EQ(rates, (std::vector<double>{0.8, 0.8, 0.4, 0.4, 0.2}));
}

/// The rate after each value.
std::vector<double> after_values(levin::PreparedOptimizer& optimizer,
                                 const std::vector<double>& values) {
  std::vector<double> rates;
  for (const double value : values) {
    optimizer.step_schedule(value);
    rates.push_back(optimizer.learning_rate());
  }
  return rates;
}

levin::OptimizerConfig on_plateau() {
  return levin::OptimizerConfig(sgd({.lr = 0.8}))
      .schedule(levin::optim::reduce_on_plateau(
          {.monitor = "loss", .factor = 0.5, .patience = 1, .cooldown = 1}));
}

TEST(StepScheduler, APlateauTakesValuesAndItsStateGoesOn) {
  Accelerator accelerator({.cpu = true}), another({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(sequential(), on_plateau());
  // The third bad value is within the cooldown.
  EXPECT_EQ(after_values(optimizer, {1.0, 0.5, 0.6, 0.7}),
            (std::vector<double>{0.8, 0.8, 0.8, 0.4}));
  auto [other_model, other] = another.prepare(sequential(), on_plateau());
  other.load_state_dict(optimizer.state_dict());
  const std::vector<double> wanted = {0.4, 0.4, 0.2, 0.2};
  EXPECT_EQ(after_values(optimizer, {0.8, 0.7, 0.6, 0.4}), wanted);
  EXPECT_EQ(after_values(other, {0.8, 0.7, 0.6, 0.4}), wanted);
}

TEST(StepScheduler, AValueAndAScheduleMustFit) {
  Accelerator first({.cpu = true}), second({.cpu = true}), third({.cpu = true});
  auto [model, plateau] = first.prepare(sequential(), on_plateau());
  EXPECT_THAT(error_of([&, &plateau = plateau] { plateau.step_schedule(); }),
              StartsWith("optim.schedule.value: step_schedule() got no value, but "
                         "reduce_on_plateau follows 'loss'"));
  auto [other, constant] = second.prepare(
      sequential(), levin::OptimizerConfig(sgd()).schedule(levin::optim::constant()));
  EXPECT_THAT(error_of([&, &constant = constant] { constant.step_schedule(0.5); }),
              StartsWith("optim.schedule.value"));
  auto [another, plain] = third.prepare(sequential(), sgd());
  EXPECT_THAT(error_of([&, &plain = plain] { plain.step_schedule(0.5); }),
              HasSubstr("the optimizer's schedule (none) follows no value"));
}

TEST(StepScheduler, RanksTakeTheValueOfTheFirst) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Accelerator accelerator({.cpu = true});
    auto [model, optimizer] = accelerator.prepare(sequential(), on_plateau());
    std::string text;
    for (const double value : {1.0, 2.0, 3.0}) {
      optimizer.step_schedule(rank == 0 ? value : -value);
      text += std::to_string(optimizer.learning_rate()) + " ";
    }
    return text;
  });
  EXPECT_THAT(words, Each("0.800000 0.800000 0.400000 "));
}

}  // namespace
