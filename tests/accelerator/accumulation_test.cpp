// Groups of batches through the Accelerator's door: accumulate, no_sync, short last groups.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

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
              StartsWith("accelerator.step: a step after 1 of the 3 batches of a group"));
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

}  // namespace
