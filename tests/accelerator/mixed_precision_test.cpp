// The engine in half types: loss scale, left out steps, master weights, losses that are no numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <memory>

#include "levin/accelerator/engine/engine.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::optim::adamw;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::run_world;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::OwnNet;
using small_nets::whole;
using ::testing::Each;
using ::testing::StartsWith;

const double kInf = std::numeric_limits<double>::infinity();

struct Training {
  Accelerator accelerator;
  OwnNet net;
  levin::PreparedModel<small_nets::OwnNetImpl> model;
  levin::PreparedOptimizer optimizer;
  levin::Batch batch = whole(dataset(32));

  explicit Training(const AcceleratorOptions& options,
                    levin::OptimizerConfig config = sgd({.lr = 0.1}))
      : accelerator(options),
        model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(config))) {}

  double step(double factor = 1.0, double max_norm = 0.0) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, batch);
    accelerator.backward(loss * factor);
    if (max_norm > 0.0) accelerator.clip_grad_norm(max_norm);
    optimizer.step();
    return loss.item<double>();
  }
  double scale() { return engine_of(accelerator).stepping().scaler()->get_scale(); }
};

std::vector<at::Tensor> weights_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : module.parameters()) weights.push_back(weight.detach().clone());
  return weights;
}

bool same(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::ranges::equal(left, right,
                            [](const auto& a, const auto& b) { return torch::equal(a, b); });
}

TEST(MixedPrecision, EachOneLearns) {
  for (const char* precision : {"no", "bf16", "fp16", "bf16-true", "16-true", "64-true"}) {
    Training run({.mixed_precision = precision, .cpu = true});
    const double first = run.step();
    double last = first;
    for (int i = 0; i < 30; ++i) last = run.step();
    EXPECT_LT(last, 0.9 * first) << precision;
  }
}

TEST(MixedPrecision, TrueHalfKeepsParametersAndGivesFloat32Outputs) {
  Training run({.mixed_precision = "bf16-true", .cpu = true});
  EXPECT_EQ(run.net->out->weight.scalar_type(), at::kBFloat16);
  EXPECT_EQ(run.model->forward(run.batch["image"]).scalar_type(), at::kFloat);
}

TEST(MixedPrecision, TheScaleDoesNotChangeAStep) {
  Training one({.mixed_precision = "fp16", .cpu = true, .engine = {.scaler = {.init_scale = 1.0}}});
  Training large(
      {.mixed_precision = "fp16", .cpu = true, .engine = {.scaler = {.init_scale = 1024.0}}});
  for (int i = 0; i < 5; ++i) {
    one.step();
    large.step();
  }
  small_nets::expect_close_weights(*one.net, *large.net);
}

TEST(MixedPrecision, AnOverflowLeavesOutTheStepAndItsSchedule) {
  Training run({.mixed_precision = "fp16", .cpu = true},
               levin::OptimizerConfig(adamw({.lr = 0.1}))
                   .schedule(levin::optim::step({.step_size = 1, .gamma = 0.5})));
  run.step();
  const auto before = weights_of(*run.net);
  EXPECT_FALSE(run.accelerator.optimizer_step_was_skipped());
  const double rate = run.optimizer.learning_rate();
  run.step(kInf);
  EXPECT_TRUE(run.optimizer.step_was_skipped());
  EXPECT_TRUE(run.accelerator.optimizer_step_was_skipped());
  EXPECT_TRUE(same(before, weights_of(*run.net)));
  EXPECT_EQ(run.optimizer.learning_rate(), rate);
  EXPECT_EQ(run.optimizer.steps(), 1);
  run.step();
  EXPECT_FALSE(run.optimizer.step_was_skipped());
  EXPECT_EQ(run.scale(), 32768.0);
  EXPECT_EQ(run.optimizer.learning_rate(), rate / 2);
}

TEST(MixedPrecision, AStepThatIsLeftOutForItsLossDropsItsGradients) {
  Training run(
      {.mixed_precision = "fp16", .cpu = true, .engine = {.loss_guard = {.nan_policy = "skip"}}});
  run.step();
  run.step(kInf);
  EXPECT_TRUE(run.optimizer.step_was_skipped());
  for (const at::Tensor& weight : run.net->parameters()) EXPECT_FALSE(weight.grad().defined());
  EXPECT_GT(run.step(), 0.0);
  EXPECT_EQ(run.optimizer.steps(), 2);
}

TEST(MixedPrecision, AHandleMayOutliveItsAccelerator) {
  auto run = std::make_unique<Training>(AcceleratorOptions{.cpu = true});
  run->step();
  const levin::PreparedOptimizer optimizer = run->optimizer;
  run.reset();
  EXPECT_EQ(optimizer.num_updates(), 1);
  EXPECT_EQ(optimizer.state_dict().integer("steps"), 1);
}

TEST(MixedPrecision, ClippingIsOfTheUnscaledGradients) {
  Training run({.mixed_precision = "fp16", .cpu = true});
  run.optimizer.zero_grad();
  run.accelerator.backward(loss_of(run.model, run.batch));
  const auto norm = run.accelerator.clip_grad_norm(1e-3).item<double>();
  EXPECT_LT(norm, 100.0);
  EXPECT_NEAR(run.accelerator.clip_grad_norm(1e9).item<double>(), 1e-3, 1e-6);
  run.optimizer.step();
  EXPECT_FALSE(run.optimizer.step_was_skipped());
}

TEST(MixedPrecision, GradientsOfAnotherOptimizerAreScaledAnewWithTheLoss) {
  Accelerator accelerator(
      {.mixed_precision = "fp16", .cpu = true, .engine = {.scaler = {.init_scale = 64.0}}});
  const auto net = small_nets::sequential();
  auto [model, first, second] =
      accelerator.prepare(net, levin::OptimizerConfig(sgd({.lr = 0.1})).parameters("0.*"),
                          levin::OptimizerConfig(sgd({.lr = 0.1})).parameters("2.*"));
  const auto batch = whole(dataset(32));
  accelerator.backward(loss_of(model, batch) * kInf);
  first.step();  // overflows
  second.zero_grad();
  first.zero_grad();
  accelerator.backward(loss_of(model, batch));
  const at::Tensor weight = net->parameters()[2];
  const double sum = weight.grad().abs().sum().item<double>() / 32.0;
  first.step();
  accelerator.backward(loss_of(model, batch));  // the second waits and accumulates
  second.step();
  EXPECT_FALSE(second.step_was_skipped());
  EXPECT_NEAR(weight.grad().abs().sum().item<double>(), 2 * sum, 0.1 * sum);
}

TEST(MixedPrecision, GoesOnBitForBitFromASavedState) {
  const levin::test::Scratch scratch;
  const AcceleratorOptions options = {
      .mixed_precision = "fp16",
      .cpu = true,
      .engine = {.scaler = {.init_scale = 256.0, .growth_interval = 3}}};
  Training whole_run(options, adamw({.lr = 0.01}));
  for (int i = 0; i < 4; ++i) whole_run.step(i == 1 ? kInf : 1.0);
  whole_run.accelerator.save_state(scratch / "state");
  for (int i = 0; i < 4; ++i) whole_run.step();
  Training resumed(options, adamw({.lr = 0.01}));
  resumed.accelerator.load_state(scratch / "state");
  for (int i = 0; i < 4; ++i) resumed.step();
  EXPECT_TRUE(same(weights_of(*whole_run.net), weights_of(*resumed.net)));
  EXPECT_EQ(whole_run.scale(), resumed.scale());
}

TEST(MixedPrecision, AnOverflowOfOneRankIsLeftOutByAll) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Training run({.mixed_precision = "fp16", .cpu = true, .strategy = "ddp"});
    run.step();
    const auto before = weights_of(*run.net);
    run.step(rank == 1 ? kInf : 1.0);
    if (!run.optimizer.step_was_skipped()) return std::string("took the step");
    if (!same(before, weights_of(*run.net))) return std::string("changed the weights");
    run.step();
    return run.scale() == 32768.0 ? std::string() : "the scale is " + std::to_string(run.scale());
  });
  EXPECT_THAT(words, Each(""));
}

TEST(MixedPrecision, RanksThatStepForThemselvesAgreeOnAnOverflow) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Training run({.mixed_precision = "fp16", .cpu = true, .strategy = "ddp"});
    const auto own_way = run.accelerator.no_sync();  // as in LocalSGD
    run.step(rank == 1 ? kInf : 1.0);
    return run.optimizer.step_was_skipped() ? std::string() : std::string("took the step");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(MixedPrecision, MasterWeightsAreOfHalfParameters) {
  Training run({.mixed_precision = "bf16-true", .cpu = true, .engine = {.master_weights = true}});
  run.step();
  const levin::State state = run.optimizer.optimizer().state_dict();
  EXPECT_TRUE(state.child("parameters").child("out.weight").contains("master"));
  EXPECT_THAT(
      error_of([] {
        Accelerator({.mixed_precision = "bf16", .cpu = true, .engine = {.master_weights = true}});
      }),
      StartsWith("accelerator.precision: master_weights are for parameters in bfloat16"));
}

TEST(MixedPrecision, AParameterThatChangedInsideAutocastIsCastAnew) {
  Training run({.mixed_precision = "bf16", .cpu = true});
  const auto scope = run.accelerator.autocast();  // one around all, as a training_step has it
  const double first = run.step();
  const double second = run.step();
  EXPECT_NE(first, second);
}

TEST(LossGuard, OffTakesEveryStep) {
  Training run({.cpu = true});
  run.step(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(run.optimizer.step_was_skipped());
}

TEST(LossGuard, SkipsTheStepOfALossThatIsNoNumber) {
  for (const double bad : {kInf, std::numeric_limits<double>::quiet_NaN()}) {
    Training run({.cpu = true, .engine = {.loss_guard = {.nan_policy = "skip"}}});
    run.step();
    const auto before = weights_of(*run.net);
    testing::internal::CaptureStderr();
    run.step(bad);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr("the loss of batch 1 is"));
    EXPECT_TRUE(run.optimizer.step_was_skipped());
    EXPECT_TRUE(same(before, weights_of(*run.net)));
    run.step();
    EXPECT_FALSE(run.optimizer.step_was_skipped());
  }
}

TEST(LossGuard, WarnsAndGoesOn) {
  Training run({.cpu = true, .engine = {.loss_guard = {.nan_policy = "warn"}}});
  testing::internal::CaptureStderr();
  run.step(kInf);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("batch 0 is inf"));
  EXPECT_FALSE(run.optimizer.step_was_skipped());
}

TEST(LossGuard, StopsWithAnErrorThatNamesTheBatch) {
  Training run({.cpu = true, .engine = {.loss_guard = {.nan_policy = "stop"}}});
  run.step();
  EXPECT_THAT(
      error_of([&] { run.step(kInf); }),
      StartsWith("accelerator.loss.stop: the loss of batch 1 is inf, and the mean before was 0."));
}

TEST(LossGuard, ASpikeIsFarAboveTheMeanOfManyLosses) {
  Training run(
      {.cpu = true,
       .engine = {.loss_guard = {.spike_policy = "skip", .spike_factor = 2.0, .spike_window = 4}}});
  run.step(50.0);  // before there is a mean nothing is one
  EXPECT_FALSE(run.optimizer.step_was_skipped());
  for (int i = 0; i < 20; ++i) run.step();
  run.step(50.0);
  EXPECT_TRUE(run.optimizer.step_was_skipped());
  run.step();
  EXPECT_FALSE(run.optimizer.step_was_skipped());
}

TEST(LossGuard, ABadLossOfOneRankIsSkippedByAll) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Training run(
        {.cpu = true, .strategy = "ddp", .engine = {.loss_guard = {.nan_policy = "skip"}}});
    run.step(rank == 1 ? kInf : 1.0);
    return run.optimizer.step_was_skipped() ? std::string() : std::string("took the step");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(LossGuard, RefusesAnotherPolicy) {
  EXPECT_THAT(
      error_of([] { levin::LossGuard guard({.nan_policy = "ignore"}); }),
      StartsWith("accelerator.loss.policy: got 'ignore', wanted off, warn, skip, rollback or "
                 "stop; set --nan-policy"));
  EXPECT_THAT(error_of([] { levin::LossGuard guard({.spike_factor = 1.0}); }),
              StartsWith("accelerator.loss.policy: got spike_factor = 1"));
}

TEST(LossGuard, KeepsItsMeanInACheckpoint) {
  levin::LossGuard first({.spike_policy = "skip", .spike_window = 2}), second = first;
  const auto where = [] { return std::string("batch"); };
  for (int i = 0; i < 3; ++i) first.look(torch::ones({}), where);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.look(torch::full({}, 10.0), where), levin::LossGuard::Verdict::kSkip);
}

}  // namespace
