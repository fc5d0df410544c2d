// Parameters that are frozen for a part of the training, and what becomes of modules that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/accelerator/engine/engine.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"
#include "tests/support/same_weights.h"
#include "tests/support/world.h"

namespace frozen_parameters {
namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::Batch;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::expect_same_weights;
using levin::test::run_world;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::OwnNet;
using small_nets::whole;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::StartsWith;

AcceleratorOptions on_cpu(const std::string& compile = "no") {
  AcceleratorOptions options;
  options.cpu = true;
  options.engine.compile = compile;
  return options;
}

void freeze(OwnNet& net, bool frozen) {
  for (const at::Tensor& p : net->hidden->parameters()) p.set_requires_grad(!frozen);
}

/// The hidden layer is frozen in the first twelve steps and in the last twelve of thirty-six.
struct Trained {
  OwnNet net;
  levin::graph::CompiledReport report;
  at::Tensor hidden_before, hidden_at_twelve, hidden_at_twentyfour;

  explicit Trained(const AcceleratorOptions& options, int64_t break_at = -1) {
    const levin::test::Scratch scratch;
    freeze(net, true);
    hidden_before = net->hidden->weight.detach().cpu().clone();
    run(options, 0, break_at < 0 ? 36 : break_at, scratch.path());
    if (break_at < 0) return;
    net = OwnNet();
    freeze(net, break_at < 24);  // not what it was when the run broke off
    run(options, break_at, 36, scratch.path());
  }

  void run(const AcceleratorOptions& options, int64_t from, int64_t to,
           const std::filesystem::path& folder) {
    Accelerator accelerator(options);
    auto [model, optimizer] =
        accelerator.prepare(net, levin::optim::adam({.lr = 0.02, .weight_decay = 0.1}));
    if (from > 0) accelerator.load_state(folder);
    Batch batch = whole(dataset(32)).to(accelerator.device());
    auto step = accelerator.compile([&, &model = model, &optimizer = optimizer](const Batch& one) {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of(model, one);
      accelerator.backward(loss);
      optimizer.step();
      return loss;
    });
    for (int64_t i = from; i < to; ++i) {
      freeze(net, i < 12 || i >= 24);
      step(batch);
      if (i == 11) hidden_at_twelve = net->hidden->weight.detach().cpu().clone();
      if (i == 23) hidden_at_twentyfour = net->hidden->weight.detach().cpu().clone();
    }
    report = step.report();
    accelerator.save_state(folder);
    net->to(at::kCPU);  // the device goes with the accelerator
  }
};

at::Tensor hidden_of(const Trained& trained) { return trained.net->hidden->weight.detach().cpu(); }

TEST(Frozen, MovesWhileItIsNot) {
  const Trained trained(on_cpu());
  EXPECT_TRUE(torch::equal(trained.hidden_at_twelve, trained.hidden_before));
  EXPECT_FALSE(torch::equal(trained.hidden_at_twentyfour, trained.hidden_before));
  EXPECT_TRUE(torch::equal(hidden_of(trained), trained.hidden_at_twentyfour));
}

TEST(Frozen, ReplayedEqualsEager) {
  const Trained eager(on_cpu());
  const Trained replayed(on_cpu("replay"));
  EXPECT_THAT(replayed.report.refusals, IsEmpty());
  EXPECT_GE(levin::test::num_replayed(replayed.report), 20);
  expect_same_weights(*replayed.net, *eager.net);
}

TEST(Frozen, AResumedRunRepeatsBitForBit) {
  const Trained once(on_cpu());
  for (const int64_t break_at : {8, 18, 30}) {
    const Trained resumed(on_cpu(), break_at);
    expect_same_weights(*resumed.net, *once.net);
  }
}

TEST(Frozen, InHalfPrecisionWithMasterWeightsToo) {
  for (const bool masters : {false, true}) {
    AcceleratorOptions options = on_cpu();
    options.mixed_precision = "bf16-true";
    options.engine.master_weights = masters;
    const Trained trained(options);
    EXPECT_FALSE(torch::equal(trained.hidden_at_twentyfour, trained.hidden_at_twelve)) << masters;
    EXPECT_TRUE(torch::equal(hidden_of(trained), trained.hidden_at_twentyfour)) << masters;
    options.engine.compile = "replay";
    const Trained replayed(options);
    expect_same_weights(*replayed.net, *trained.net);
  }
}

TEST(Frozen, OnXlaEqualsTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  AcceleratorOptions options;
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  options.devices = 1;
  const Trained there(options);
  const Trained here(on_cpu());
  EXPECT_TRUE(torch::allclose(there.hidden_at_twelve, here.hidden_before));
  EXPECT_TRUE(torch::allclose(there.hidden_at_twentyfour, here.hidden_at_twentyfour, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(hidden_of(there), hidden_of(here), 1e-4, 1e-5));
}

// What comes to a module later.

struct Loop {
  Accelerator accelerator{on_cpu()};
  OwnNet net;
  levin::PreparedModel<small_nets::OwnNetImpl> model;
  levin::PreparedOptimizer optimizer;

  Loop()
      : model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(sgd({.lr = 0.1})))) {}
  void step() {
    optimizer.zero_grad();
    accelerator.backward(loss_of(model, whole(dataset(8))));
    optimizer.step();
  }
};

TEST(PreparedModule, AParameterThatIsAddedOrReplacedLaterIsAnErrorThatNamesIt) {
  Loop added;
  added.step();
  added.net->register_parameter("late", torch::ones({2}));
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 3; ++i) added.step();
              }),
              StartsWith("accelerator.parameters: parameter late was added to its module"));
  Loop replaced;
  replaced.step();
  replaced.net->out->weight = replaced.net->out->register_parameter("fresh", torch::ones({2, 16}));
  EXPECT_THAT(error_of([&] { replaced.accelerator.state_dict(); }),
              StartsWith("accelerator.parameters: parameter out.fresh was added to its module"));
}

TEST(PreparedModule, WhatIsAddedFrozenIsNoError) {
  Loop loop;
  loop.step();
  loop.net->register_parameter("late", torch::ones({2}), /*requires_grad=*/false);
  for (int i = 0; i < 3; ++i) loop.step();
  EXPECT_EQ(loop.optimizer.steps(), 4);
}

TEST(PreparedModule, ConvertedAfterItsOptimizerIsAnErrorThatNamesBoth) {
  Loop loop;
  loop.step();
  loop.net->to(at::kDouble);
  loop.optimizer.zero_grad();
  EXPECT_THAT(
      error_of([&] {
        Batch batch = whole(dataset(8));
        batch.set("image", batch["image"].to(at::kDouble));
        loop.accelerator.backward(loss_of(loop.model, batch));
        loop.optimizer.step();
      }),
      StartsWith(
          "optim.parameters: parameter hidden.weight is Double [16, 6] on cpu, but it was Float"));
}

// Optimizers that share a parameter.

TEST(SharedParameter, IsUpdatedByBothAsTorchDoes) {
  Accelerator accelerator(on_cpu());
  OwnNet net, reference;
  auto [model, all, part] =
      accelerator.prepare(net, sgd({.lr = 0.1}).of(net), sgd({.lr = 0.2}).of(net->out));
  torch::optim::SGD torch_all(reference->parameters(), 0.1);
  torch::optim::SGD torch_part(reference->out->parameters(), 0.2);
  for (int i = 0; i < 3; ++i) {
    all.zero_grad();
    accelerator.backward(loss_of(model, whole(dataset(8))));
    all.step();
    part.step();
    reference->zero_grad();
    loss_of(reference, whole(dataset(8))).backward();
    torch_all.step();
    torch_part.step();
  }
  small_nets::expect_close_weights(*net, *reference);
}

TEST(SharedParameter, WhoseGradientBothWouldChangeIsAnErrorThatNamesIt) {
  for (const bool scaled : {false, true}) {
    AcceleratorOptions options = on_cpu();
    if (scaled) options.mixed_precision = "fp16";
    if (!scaled) options.gradient_accumulation_steps = 2;
    Accelerator accelerator(options);
    OwnNet net;
    EXPECT_THAT(error_of([&] { accelerator.prepare(net, sgd().of(net), sgd().of(net->out)); }),
                StartsWith("accelerator.optimizer: parameter out.weight belongs to two optimizers"))
        << scaled;
  }
}

// What would do nothing.

TEST(OptimizerFrequency, IsAnErrorInALoopOfOnesOwn) {
  Accelerator accelerator(on_cpu());
  OwnNet net;
  accelerator.prepare(net);
  EXPECT_THAT(
      error_of([&] { accelerator.prepare(sgd().frequency(3)); }),
      StartsWith("accelerator.optimizer: sgd has frequency(3), but only the Trainer applies"));
  EXPECT_THAT(
      error_of([&] {
        accelerator.prepare(std::vector<levin::OptimizerConfig>{sgd().frequency(2).of(net)});
      }),
      StartsWith("accelerator.optimizer: sgd has frequency(2)"));
}

TEST(OptimizerFrequency, ItsScheduleEndsWithTheRun) {
  Accelerator accelerator(on_cpu());
  OwnNet net;
  accelerator.prepare(net);
  auto optimizer = engine_of(accelerator)
                       .prepare_optimizers({levin::OptimizerConfig(sgd({.lr = 1.0}))
                                                .frequency(3)
                                                .schedule(levin::optim::linear())},
                                           /*total_steps=*/10)
                       .front();
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    rates.push_back(optimizer.learning_rate());
    accelerator.backward(loss_of(net, whole(dataset(8))));
    optimizer.step();
  }
  EXPECT_THAT(rates, ::testing::ElementsAre(1.0, ::testing::DoubleNear(2.0 / 3, 1e-9),
                                            ::testing::DoubleNear(1.0 / 3, 1e-9), 0.0));
}

TEST(OverlapUpdate, AndALossScaleAreAnErrorThatNamesBoth) {
  AcceleratorOptions options = on_cpu();
  options.mixed_precision = "fp16";
  options.engine.ddp.overlap_update = true;
  EXPECT_THAT(error_of([&] { Accelerator accelerator(options); }),
              StartsWith("strategy.ddp.options: --ddp-overlap-update updates parameters before"));
}

// A step that is left out.

/// One optimizer steps each time, the other every third, over gradients that add up.
std::vector<at::Tensor> in_turns(const std::string& strategy, int64_t bad_step, bool bad_here) {
  AcceleratorOptions options = on_cpu();
  options.strategy = strategy;
  options.engine.loss_guard.nan_policy = "skip";
  Accelerator accelerator(options);
  OwnNet net;
  auto [model, often, seldom] =
      accelerator.prepare(net, sgd({.lr = 0.1}).of(net->hidden), sgd({.lr = 0.1}).of(net->out));
  for (int64_t i = 0; i < 7; ++i) {
    if (i == bad_step && !bad_here && strategy == "single") continue;
    Batch batch = whole(dataset(8));
    batch.set("image", batch["image"] * static_cast<double>(i + 1));
    at::Tensor loss = loss_of(model, batch);
    if (i == bad_step && bad_here) loss = loss * std::numeric_limits<double>::quiet_NaN();
    accelerator.backward(loss);
    often.step();
    often.zero_grad();
    if (i % 3 != 2) continue;
    seldom.step();
    seldom.zero_grad();
  }
  return net->parameters();
}

std::string differs(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!torch::allclose(got[i], wanted[i], 1e-5, 1e-7)) return c10::str("number ", i);
  }
  return "";
}

TEST(LeftOutStep, LeavesNothingInGradientsThatWaitForAnotherOptimizer) {
  for (const int64_t bad_step : {0, 1, 3, 4}) {
    EXPECT_EQ(differs(in_turns("single", bad_step, true), in_turns("single", bad_step, false)), "")
        << bad_step;
  }
}

TEST(LeftOutStep, OfOneRankLeavesNothingOnAny) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          const auto got = in_turns("ddp", 1, rank == 1);
                          for (const at::Tensor& parameter : got) {
                            if (!parameter.isfinite().all().item<bool>()) return "no numbers";
                          }
                          return "";
                        }),
              Each(""));
}

}  // namespace
}  // namespace frozen_parameters
